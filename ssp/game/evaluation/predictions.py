"""Predictions that another program made, as rows. Two forms: `{id, prediction}` beside a question
file, and rows that bring `golden_answers` themselves (FlashRAG's, with `pred` or `output.pred`; our
own, with `set`, `sample` and `cause`)."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ssp.base.errors import InputError, hold
from ssp.data import rows as data
from ssp.data.golds import answers
from ssp.data.readers import Question
from ssp.game.evaluation.rows import ScoredRow, row_of

_SUFFIXES = (".jsonl", ".parquet", *data.PACKED)
_FIELDS = ("prediction", "pred")
_FORM = re.compile(r"</think>|</?answer>|\\boxed\{|<\|\w+\|>|</s>")
"""What stands in a whole response and in no answer."""


def stem(path: str | Path) -> str:
    """The name of a set: that of its file without the endings of data files."""
    return re.sub(r"(\.(jsonl|parquet))?(\.(gz|bz2|xz|zst))?$", "", Path(path).name)


def read(
    paths: Sequence[str | Path], questions: Mapping[str, Sequence[Question]]
) -> dict[str, list[ScoredRow]]:
    """Set name → its rows. A path is a file, or a folder of them; a set is named by its file's
    stem. `questions`, by set name, when the files have none of their own: of one file and one set
    the names may differ. InputError for rows that are no predictions, twice the same, too few, or
    of no known question."""
    files: dict[str, Path] = {}
    for path in map(Path, paths):
        inside = (
            sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
            if path.is_dir()
            else [path]
        )
        hold(
            inside,
            f"a folder of predictions holds {', '.join(_SUFFIXES)} files",
            path,
            "check the path",
        )
        for file in inside:
            name = stem(file)
            rule, twice = "files of predictions have different names", f"{files.get(name)}, {file}"
            hold(name not in files, rule, twice, "rename one")
            files[name] = file
    if not questions:
        return _own(files)
    if len(files) == len(questions) == 1:
        files = dict(zip(questions, files.values(), strict=True))
    rule, step = "every file of --data has its predictions, under the same name", "rename the files"
    hold(
        set(files) == set(questions),
        rule,
        f"predictions {', '.join(files)}; questions {', '.join(questions)}",
        step,
    )
    return {name: _matched(files[name], asked) for name, asked in questions.items()}


def _own(files: Mapping[str, Path]) -> dict[str, list[ScoredRow]]:
    """Rows that bring their gold answers; those that name no `set` belong to their file's."""
    seen: dict[str, str] = {}
    found: dict[str, list[ScoredRow]] = {}
    for stem, path in files.items():
        before = len(seen)
        for row in data.rows(path):
            if "golden_answers" not in row.fields:
                step = (
                    "name the file of questions with --data, or rename the column of the right"
                    " answers"
                )
                rule = "predictions bring golden_answers, or stand beside --data"
                row.fail("golden_answers", rule, row.lacks(), step)
            golds, name = answers(row, row, "golden_answers"), row.label("set") or stem
            hops = row.count("hops", least=0) if row.has("hops") else 0
            id = row.key("id") if row.has("id") else str(row.index)
            question = Question(
                id, row.label("question"), tuple(golds), hops, rubric=row.label("rubric")
            )
            found.setdefault(name, []).append(_scored(row, question, f"{name}/{id}", seen))
        hold(
            len(seen) != before,
            "a file of predictions has at least one row",
            path,
            "check the file",
        )
    return found


def _matched(path: Path, questions: Sequence[Question]) -> list[ScoredRow]:
    """Rows by id: the question's, or the one it has within its source and split."""
    known = {question.id: question for question in questions}
    for question in questions:
        scope = "".join(f"{part}/" for part in (question.source, question.split) if part)
        known.setdefault(question.id.removeprefix(scope), question)
    seen: dict[str, str] = {}
    found: dict[str, list[ScoredRow]] = {question.id: [] for question in questions}
    for row in data.rows(path):
        if "id" not in row.fields:
            step = (
                "name it so; of one object of ids and answers: jq -c 'to_entries[] | {id: .key,"
                " prediction: .value}'"
            )
            row.fail("id", "a prediction's id is that of a question", row.lacks(), step)
        name = row.key("id")
        if name not in known:
            row.fail("id", "a prediction's id is that of a question", data.show(name))
        asked = known[name]
        found[asked.id].append(_scored(row, asked, asked.id, seen))
    counts = Counter(map(len, found.values()))
    if len(counts) > 1 or 0 in counts:
        least = min(found, key=lambda name: len(found[name]))
        shown = f"{path}: {len(found[least])} of {max(counts)} for {least}"
        raise InputError(
            "every question has its predictions, equally many", shown, "add what is missing"
        )
    return [one for rows in found.values() for one in rows]


def _scored(row: data.Row, question: Question, name: str, seen: dict[str, str]) -> ScoredRow:
    output = row.fields.get("output")
    place = (
        row.inside("output")
        if isinstance(output, dict) and not output.keys().isdisjoint(_FIELDS)
        else row
    )
    field = next((field for field in _FIELDS if field in place.fields), "prediction")
    if field not in place.fields:
        rule = "a prediction is in the field prediction, pred or output.pred"
        row.fail(field, rule, row.lacks(), "rename the column that holds it to prediction")
    sample = row.count("sample", least=0) if row.has("sample") else 0
    row.claim(f"{name}#{sample}" if sample else name, seen)
    given = place.text(field, empty=True) if place.has(field) else None
    # our own rows are what a protocol took out
    if given and _FORM.search(given) and not row.has("set"):
        rule, step = "a prediction is the answer alone", "take the answer out of the text around it"
        place.fail(field, rule, data.show(given), step)
    return row_of(question, given, sample, row.label("cause") if given is None else "")
