"""Predictions that another program made, as rows: `{id, prediction}` beside a question file, rows that
bring `golden_answers` themselves (our own have `set`, `sample` and `cause`), or one of
`forms.PREDICTIONS`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from ssp.base.errors import InputError, hold
from ssp.data import forms
from ssp.data.containers import DATA_FILES, rows
from ssp.data.golds import answers
from ssp.data.readers import IDS, Question
from ssp.data.rows import Row, show
from ssp.game.evaluation.rows import ScoredRow, row_of

_FORM = re.compile(r"</think>|</?answer>|\\boxed\{|<\|\w+\|>|</s>")
"""What a whole response has, and no answer."""


def stem(path: str | Path) -> str:
    """The name of a set: that of its file without the endings of data files."""
    return re.sub(r"(\.(jsonl|json|csv|tsv|parquet))?(\.(gz|bz2|xz|zst))?$", "", Path(path).name)


def read(
    paths: Sequence[str | Path], questions: Mapping[str, Sequence[Question]]
) -> dict[str, list[ScoredRow]]:
    """Set name → its rows. A path is a file, or a folder of files; the file's stem names the set.

    `questions`, by set name: needed where the rows bring no gold answers. One file and one set may
    have different names. InputError for rows that are no predictions, occur twice, are too few, or
    belong to no known question."""
    files = _files(paths)
    if not questions:
        return _with_golds(files)
    if len(files) == len(questions) == 1:
        files = dict(zip(questions, files.values(), strict=True))
    rule = "every file of --data has its predictions, under the same name"
    names = f"predictions {', '.join(files)}; questions {', '.join(questions)}"
    hold(set(files) == set(questions), rule, names, "rename the files")
    return {name: _by_id(files[name], asked) for name, asked in questions.items()}


def _files(paths: Sequence[str | Path]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for path in map(Path, paths):
        inside = [path]
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if DATA_FILES.search(file.name))
        rule = "a folder of predictions holds data files"
        hold(inside, rule, path, "check the path")
        for file in inside:
            name = stem(file)
            rule = "files of predictions have different names"
            hold(name not in files, rule, f"{files.get(name)}, {file}", "rename one")
            files[name] = file
    return files


def _with_golds(files: Mapping[str, Path]) -> dict[str, list[ScoredRow]]:
    """Rows that bring their gold answers. One that names no `set` belongs to that of its file."""
    claimed: dict[str, str] = {}
    sets: dict[str, list[ScoredRow]] = {}
    for file_stem, path in files.items():
        before = len(claimed)
        for row in _rows(path):
            if "golden_answers" not in row.fields:
                rule = "predictions bring golden_answers, or stand beside --data"
                step = (
                    "name the file of questions with --data, or rename the column of the right"
                    " answers"
                )
                row.fail("golden_answers", rule, row.lacks(), step)
            golds = tuple(answers(row, row, "golden_answers"))
            name = row.label("set") or file_stem
            hops = row.count("hops", least=0) if row.has("hops") else 0
            id = row.key("id") if row.has("id") else str(row.index)
            asked = row.label("question")
            question = Question(id, asked, golds, hops, rubric=row.label("rubric"))
            scored = _scored(row, question, f"{name}/{id}", claimed)
            sets.setdefault(name, []).append(scored)
        rule = "a file of predictions has at least one row"
        hold(len(claimed) != before, rule, path, "check the file")
    return sets


def _rows(path: Path) -> Iterator[Row]:
    """The rows of a file in our names."""
    for row in rows(path):
        yield row if "prediction" in row.fields else forms.recast(row, forms.PREDICTIONS)


def _by_id(path: Path, questions: Sequence[Question]) -> list[ScoredRow]:
    """Rows by their question's id, or by the id that it has within its source and split."""
    known = {question.id: question for question in questions}
    for question in questions:
        scope = "".join(f"{part}/" for part in (question.source, question.split) if part)
        known.setdefault(question.id.removeprefix(scope), question)
    claimed: dict[str, str] = {}
    samples: dict[str, list[ScoredRow]] = {question.id: [] for question in questions}
    rule = "a prediction's id is that of a question"
    for row in _rows(path):
        key = next(filter(row.fields.__contains__, IDS), "")
        if not key:
            step = (
                "name it so; of one object of ids and answers: jq -c 'to_entries[] | {id: .key,"
                " prediction: .value}'"
            )
            row.fail("id", rule, row.lacks(), step)
        id = row.key(key)
        if id not in known:
            row.fail(key, rule, show(id))
        question = known[id]
        scored = _scored(row, question, question.id, claimed)
        samples[question.id].append(scored)

    counts = {id: len(rows) for id, rows in samples.items()}
    numbers = set(counts.values())
    if len(numbers) > 1 or 0 in numbers:
        fewest = min(counts, key=counts.__getitem__)
        rule = "every question has its predictions, equally many"
        shown = f"{path}: {counts[fewest]} of {max(numbers)} for {fewest}"
        raise InputError(rule, shown, "add what is missing")
    return list(chain.from_iterable(samples.values()))


def _scored(row: Row, question: Question, name: str, claimed: dict[str, str]) -> ScoredRow:
    field = "prediction"
    if field not in row.fields:
        rule = "a prediction is in the field prediction, pred or output.pred, or of a known form"
        row.fail(field, rule, row.lacks(), "rename the column that holds it to prediction")
    sample = row.count("sample", least=0) if row.has("sample") else 0
    row.claim(f"{name}#{sample}" if sample else name, claimed)
    if not row.has(field):
        return row_of(question, None, sample, row.label("cause"))

    given = row.text(field, empty=True)
    # A row with `set` is ours, whose protocol has taken the answer out.
    if _FORM.search(given) and not row.has("set"):
        rule = "a prediction is the answer alone"
        step = "take the answer out of the text around it"
        row.fail(field, rule, show(given), step)
    return row_of(question, given, sample)
