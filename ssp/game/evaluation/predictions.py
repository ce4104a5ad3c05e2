"""Predictions that another program made, as rows.

Owns their two forms: `{id, prediction}` beside a question file, and rows that bring `golden_answers` themselves
(FlashRAG's, with `pred` or `output.pred`; our own, with `set`, `sample` and `cause`). Promises that every question of a
file has its prediction, each once, or a refusal that names what is missing. Refuses to play.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ssp.base.errors import InputError
from ssp.data import rows as data
from ssp.data.readers import Question
from ssp.game.evaluation.rows import Row, row_of, void_row
from ssp.game.judge import normalise

_SUFFIXES = (".jsonl", ".parquet", ".gz", ".zst")


@dataclass(frozen=True)
class _Said:
    """One prediction: of which question, which sample; None: nothing was handed in; `cause`: why it is void."""

    prediction: str | None
    sample: int
    cause: str

    def row(self, question: Question) -> Row:
        """The row of this prediction."""
        if self.cause:
            return void_row(question, self.cause, self.sample)
        return row_of(question, self.prediction, self.sample)


def read(paths: Sequence[str | Path], questions: Mapping[str, Sequence[Question]]) -> dict[str, list[Row]]:
    """Set name → its rows. A path is a file, or a folder of them; a set is named by its file's stem.

    `questions`, by set name, when the files have none of their own: of one file and one set the names may differ.
    InputError for rows that are no predictions, twice the same, too few, or of no known question.
    """
    files = _files(paths)
    if not questions:
        return _all_own(files)
    if len(files) == len(questions) == 1:
        ((name, asked),) = questions.items()
        return {name: _matched(next(iter(files.values())), asked)}
    if set(files) != set(questions):
        found = f"predictions {', '.join(files)}; questions {', '.join(questions)}"
        raise InputError("every file of --data has its predictions, under the same name", found, "rename the files")
    return {name: _matched(files[name], asked) for name, asked in questions.items()}


def _files(paths: Sequence[str | Path]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for path in map(Path, paths):
        inside = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES) if path.is_dir() else [path]
        if not inside:
            raise InputError(f"a folder of predictions holds {', '.join(_SUFFIXES)} files", path, "check the path")
        for file in inside:
            name = file.name.split(".", 1)[0]
            if name in files:
                raise InputError("files of predictions have different names", f"{files[name]}, {file}", "rename one")
            files[name] = file
    return files


def _all_own(files: Mapping[str, Path]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for stem, path in files.items():
        for name, rows in _own(path, stem).items():
            if name in found:
                raise InputError("a set stands in one file of predictions", f"{name}, again in {path}", "leave one out")
            found[name] = rows
    return found


def _own(path: Path, name: str) -> dict[str, list[Row]]:
    """Rows that bring their gold answers; those that name no `set` belong to set `name`."""
    seen: dict[str, str] = {}
    found: dict[str, list[Row]] = {}
    for row in data.rows(path):
        id, golds = row.key("id") if row.has("id") else str(row.index), row.texts("golden_answers", one=True)
        if not all(map(normalise, golds)):
            row.fail("golden_answers", "a gold answer keeps a word after normalisation", data.show(golds))
        hops = row.count("hops", least=0) if row.has("hops") else 0
        said, key = _said(row, f"{row.label('set')}/{id}", seen), row.label("set") or name
        found.setdefault(key, []).append(said.row(Question(id, row.label("question"), tuple(golds), hops)))
    if not found:
        raise InputError("a file of predictions has at least one row", path, "check the file")
    return found


def _matched(path: Path, questions: Sequence[Question]) -> list[Row]:
    """Rows by id: the question's, or the one it has within its source and split."""
    ids = {question.id: question.id for question in questions}
    for question in questions:
        scope = "".join(f"{part}/" for part in (question.source, question.split) if part)
        ids.setdefault(question.id.removeprefix(scope), question.id)
    seen: dict[str, str] = {}
    said: dict[str, list[_Said]] = {question.id: [] for question in questions}
    for row in data.rows(path):
        name = row.key("id")
        if name not in ids:
            row.fail("id", "a prediction's id is that of a question", data.show(name))
        said[ids[name]].append(_said(row, ids[name], seen))
    counts = Counter(map(len, said.values()))
    if len(counts) > 1 or 0 in counts:
        least = min(said, key=lambda name: len(said[name]))
        found = f"{path}: {len(said[least])} of {max(counts)} for {least}; {sum(counts.values())} questions"
        raise InputError("every question has its predictions, equally many", found, "add what is missing")
    return [one.row(question) for question in questions for one in said[question.id]]


def _said(row: data.Row, name: str, seen: dict[str, str]) -> _Said:
    place = row.maybe("output") if row.has("output") else row
    field = next((field for field in ("prediction", "pred") if field in place.fields), "prediction")
    if field not in place.fields:
        row.fail(field, "a prediction is in the field prediction, pred or output.pred", "not there")
    sample = row.count("sample", least=0) if row.has("sample") else 0
    row.claim(f"{name}#{sample}" if sample else name, seen)
    given = place.text(field, empty=True) if place.has(field) else None
    return _Said(given, sample, row.label("cause") if given is None else "")
