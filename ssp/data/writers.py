"""Writers of question and target files. A file is whole or not there, and a row that
`ssp.data.readers` would misread is refused."""

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
    """Write Search-R1's five columns. `prompt`: the one message of a row, with the hole {question}
    (`ssp.game.protocols.training_prompt`): its trainer adds no instructions, and its scorer wants
    an example's `<answer>` before the policy's. The index counts from 0 in each (source, split).
    InputError for a question without source or split, and for one that a row would not give
    back."""
    numbers: Counter[tuple[str, str]] = Counter()
    rows = []
    for question in questions:
        source, split = scope = question.source, question.split
        if not source or not split:
            rule = "Search-R1 rows have data_source and split"
            names = f"{question.id}: source {source!r}, split {split!r}"
            raise InputError(rule, names, "give --source and --split")
        said = prompt.replace("{question}", question.question)
        answered = question.answers and all(map(normalise, question.answers))
        if asked(said) != question.question or not answered:
            rule = (
                f'in a Search-R1 row the question follows "{MARKER}" in one line, and each answer'
                " keeps a word"
            )
            shown = f"{question.id}: {question.question} ({', '.join(question.answers)})"
            raise InputError(rule, shown, "change that question, or write another format")
        row = _verl_row(source, said, question.answers, split, numbers[scope])
        if question.rubric:
            row["extra_info"]["rubric"] = question.rubric
        rows.append(row)
        numbers[scope] += 1
    _write(path, rows, parquet=True)


def write_ssp(path: str | Path, targets: Sequence[Target]) -> None:
    """Write SSP's processed rows, with the number of searches and the example questions in
    extra_info (as in the source rows). Their `extra_info.index` is the row's number from 0. Prompts
    are in our own words; `ssp train` renders its own."""
    rows = []
    for number, target in enumerate(targets):
        system = f"Search, then write one question with the given answer.\n{target.examples}"
        user = f"Answer: {target.answer}\nSearches: {target.searches}"
        row = _verl_row(SSP_SOURCE, user, [target.answer], "train", number)
        row["prompt"].insert(0, {"role": "system", "content": system.strip()})
        call = {
            "data_source": SSP_SOURCE,
            "ground_truth": {"target": [target.answer]},
            "question": "dummy",
        }
        row["extra_info"] |= {
            "question": "dummy",
            "need_tools_kwargs": True,
            "tools_kwargs": {"search": {"create_kwargs": call}},
            "search_turns": target.searches,
            "sys_question_example": target.examples,
        }
        row["metadata"] = None
        rows.append(row)
    _write(path, rows, parquet=True)


def write_flashrag(path: str | Path, questions: Sequence[Question]) -> None:
    """Write FlashRAG's `{id, question, golden_answers, metadata}`; metadata has hops, data_source,
    split and rubric where they are known."""
    rows = []
    for question in questions:
        row = {"id": question.id, "question": question.question}
        answers = list(question.answers)
        rows.append({**row, "golden_answers": answers, "metadata": _known(question)})
    _write(path, rows)


def write_plain(path: str | Path, questions: Sequence[Question]) -> None:
    """Write `{id, question, answers}`, and hops, data_source, split and rubric where they are
    known."""
    rows = []
    for question in questions:
        row = {"id": question.id, "question": question.question}
        rows.append({**row, "answers": list(question.answers), **_known(question)})
    _write(path, rows)


def write_traces(path: str | Path, traces: Sequence[dict[str, Any]]) -> None:
    """Write traces of a warm start, one JSON object a line (see `ssp.learning.warmup.traces`);
    `path` ends in .jsonl."""
    jsonl = Path(path).suffix == ".jsonl"
    hold(jsonl, "a file of traces ends in .jsonl", path, "give it such a name")
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
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": said}],
        "ability": ABILITY,
        "reward_model": {"style": "rule", "ground_truth": {"target": list(golds)}},
        "extra_info": {"split": split, "index": index},
    }


def _write(path: str | Path, rows: Iterable[dict[str, Any]], parquet: bool = False) -> None:
    """Write rows as jsonl, jsonl.gz or, where the format has it, parquet, by the ending of
    `path`."""
    path = Path(path)
    endings = (".jsonl", ".jsonl.gz", ".parquet") if parquet else (".jsonl", ".jsonl.gz")
    rule = f"a file of this format ends in {', '.join(endings)}"
    hold(path.name.endswith(endings), rule, path, "give it such a name")
    try:
        with whole(path) as aside:
            if path.suffix == ".parquet":
                import pyarrow as pa
                import pyarrow.parquet as pq

                pq.write_table(pa.Table.from_pylist(list(rows)), aside)
            else:
                with gzip.open(aside, "wb") if path.suffix == ".gz" else aside.open("wb") as stream:
                    for row in rows:
                        stream.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    except UnicodeEncodeError as error:
        rule = "--source and --split are valid Unicode"
        raise InputError(rule, ascii(error.object), "type them in UTF-8") from error
