"""Writers of question and target files: whole or not there. A row that `ssp.data.readers` would
misread is refused."""

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ssp.base.errors import InputError, hold
from ssp.base.files import whole
from ssp.base.text import normalise
from ssp.data.readers import MARKER, Question, Target, asked

ABILITY = "fact-reasoning"
SSP_SOURCE = "quark_selfplay_en"
"""`data_source` of SSP's training rows; its trainer finds the retriever by it."""


def write_search_r1(path: str | Path, questions: Sequence[Question], prompt: str) -> None:
    """Search-R1's five columns. `prompt`: the one message of a row, with the hole {question}
    (`ssp.game.protocols.training_prompt`): its trainer adds no instructions, and its scorer wants
    an example's `<answer>` before the policy's. The index counts from 0 in each (source, split).
    InputError for a question without source or split, and for one that a row would not give
    back."""
    numbers: Counter[tuple[str, str]] = Counter()
    rows = []
    for question in questions:
        scope = (question.source, question.split)
        found = f"{question.id}: source {question.source!r}, split {question.split!r}"
        hold(
            all(scope),
            "Search-R1 rows have data_source and split",
            found,
            "give --source and --split",
        )
        rule = (
            f'in a Search-R1 row the question follows "{MARKER}" in one line, and each answer keeps'
            " a word"
        )
        found = f"{question.id}: {question.question} ({', '.join(question.answers)})"
        said = prompt.replace("{question}", question.question)
        fits = (
            asked(said) == question.question
            and question.answers
            and all(map(normalise, question.answers))
        )
        hold(fits, rule, found, "change that question, or write another format")
        row = _verl_row(question.source, said, question.answers, question.split, numbers[scope])
        row["extra_info"] |= {"rubric": question.rubric} if question.rubric else {}
        rows.append(row)
        numbers[scope] += 1
    _write(path, rows, parquet=True)


def write_ssp(path: str | Path, targets: Sequence[Target]) -> None:
    """SSP's processed rows, with the number of searches and the example questions in extra_info (as
    in the source rows). Their `extra_info.index` is the row's number from 0. Prompts are in our own
    words; `ssp train` renders its own."""
    rows = []
    for number, target in enumerate(targets):
        system = (
            f"Search, then write one question with the given answer.\n{target.examples}".strip()
        )
        user = f"Answer: {target.answer}\nSearches: {target.searches}"
        row = _verl_row(SSP_SOURCE, user, [target.answer], "train", number)
        row["prompt"].insert(0, {"role": "system", "content": system})
        call = {
            "data_source": SSP_SOURCE,
            "ground_truth": {"target": [target.answer]},
            "question": "dummy",
        }
        tools = {"need_tools_kwargs": True, "tools_kwargs": {"search": {"create_kwargs": call}}}
        asked = {"search_turns": target.searches, "sys_question_example": target.examples}
        row["extra_info"] |= {"question": "dummy", **tools, **asked}
        rows.append({**row, "metadata": None})
    _write(path, rows, parquet=True)


def write_flashrag(path: str | Path, questions: Sequence[Question]) -> None:
    """FlashRAG's `{id, question, golden_answers, metadata}`; hops, data_source and split, where
    known, in metadata."""
    rows = (
        {
            "id": q.id,
            "question": q.question,
            "golden_answers": list(q.answers),
            "metadata": _known(q),
        }
        for q in questions
    )
    _write(path, rows)


def write_plain(path: str | Path, questions: Sequence[Question]) -> None:
    """`{id, question, answers}`, and hops, data_source and split where known."""
    rows = (
        {"id": q.id, "question": q.question, "answers": list(q.answers), **_known(q)}
        for q in questions
    )
    _write(path, rows)


def write_traces(path: str | Path, traces: Sequence[dict[str, Any]]) -> None:
    """Traces of a warm start, one JSON object a line (see `ssp.learning.warmup.traces`); `path`
    ends in .jsonl."""
    hold(
        Path(path).suffix == ".jsonl",
        "a file of traces ends in .jsonl",
        path,
        "give it such a name",
    )
    _write(path, traces)


def _known(question: Question) -> dict[str, Any]:
    known = {
        "hops": question.hops,
        "data_source": question.source,
        "split": question.split,
        "rubric": question.rubric,
    }
    return {name: value for name, value in known.items() if value}


def _verl_row(
    source: str, said: str, golds: Iterable[str], split: str, index: int
) -> dict[str, Any]:
    prompt, reward = (
        [{"role": "user", "content": said}],
        {"style": "rule", "ground_truth": {"target": list(golds)}},
    )
    row = {"data_source": source, "prompt": prompt, "ability": ABILITY, "reward_model": reward}
    return {**row, "extra_info": {"split": split, "index": index}}


def _write(path: str | Path, rows: Iterable[dict[str, Any]], parquet: bool = False) -> None:
    """Rows as jsonl, jsonl.gz or, where the format has it, parquet, by the ending of `path`."""
    path = Path(path)
    endings = (".jsonl", ".jsonl.gz") + ((".parquet",) if parquet else ())
    if not path.name.endswith(endings):
        raise InputError(
            f"a file of this format ends in {', '.join(endings)}", path, "give it such a name"
        )
    try:
        with whole(path) as aside:
            if path.suffix == ".parquet":
                import pyarrow as pa
                import pyarrow.parquet as pq

                pq.write_table(pa.Table.from_pylist(list(rows)), aside)
            else:
                with gzip.open(aside, "wb") if path.suffix == ".gz" else aside.open("wb") as stream:
                    stream.writelines(
                        json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows
                    )
    except UnicodeEncodeError as error:
        raise InputError(
            "--source and --split are valid Unicode", ascii(error.object), "type them in UTF-8"
        ) from error
