"""Readers of the files that users bring: corpora (Search-R1), targets (SSP), evaluation questions (FlashRAG).

Owns the row formats. Promises that a bad row ends in InputError that names the file, the line and the field, and that
ids are unique. Refuses to repair: nothing is skipped except blank lines and a byte order mark.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from ssp.episode import Document
from ssp.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """One answer to ask about. `searches`: requested number, 0 when the row does not say; `examples`: style."""

    id: str
    answer: str
    searches: int = 0
    examples: str = ""


@dataclass(frozen=True)
class Question:
    """One evaluation question, all its right answers (at least one), and its number of hops (0 when not stated)."""

    id: str
    question: str
    answers: tuple[str, ...]
    hops: int = 0


def read_corpus(path: str | Path, progress: Callable[[int], None] | None = None) -> list[Document]:
    """Documents of a jsonl file (also .gz) in row order: `{id, contents}` or `{id, title, text}`.

    A title goes in as Search-R1 writes it: `"Title"`, newline, text. `progress` is called with the rows read so far.
    """
    documents: list[Document] = []
    for row in _rows(path):
        documents.append(Document(row.unique_id(), _contents(row)))
        if progress and len(documents) % 10_000 == 0:
            progress(len(documents))
    return _not_empty(path, documents)


def read_targets(path: str | Path) -> list[Target]:
    """Targets of a jsonl file (also .gz): SSP's source rows (`ground_truth`, `search_turns`, `sys_question_example`) or
    its processed rows (`reward_model.ground_truth.target`: one string, or a list of one).

    An id is the row's `id`, else `extra_info.index`, else the number of the row from 0.
    """
    targets = [
        _processed(row, n) if "reward_model" in row.fields else _source(row, n) for n, row in enumerate(_rows(path))
    ]
    return _not_empty(path, targets)


def read_eval(path: str | Path) -> list[Question]:
    """Questions of a FlashRAG jsonl file (also .gz): `{id, question, golden_answers, metadata: {hops}}`."""
    return _not_empty(path, [_question(row) for row in _rows(path)])


def _contents(row: _Line) -> str:
    if "contents" in row.fields:
        return row.text("contents")
    if "text" not in row.fields:
        row.fail("contents", "every corpus row has contents, or title and text", "not there")
    title = row.text("title", empty=True).strip().strip('"')
    return f'"{title}"\n{row.text("text")}'


def _source(row: _Line, number: int) -> Target:
    examples = row.text("sys_question_example", empty=True)
    return Target(row.unique_id(number), row.text("ground_truth"), row.count("search_turns", least=1), examples)


def _processed(row: _Line, number: int) -> Target:
    target = row.inside("reward_model").inside("ground_truth")
    if isinstance(target.fields.get("target"), list):
        answers = target.texts("target")
        if len(answers) != 1:
            target.fail("target", "a target row names exactly one answer", f"{len(answers)} answers")
        answer = answers[0]
    else:
        answer = target.text("target")
    extra = row.inside("extra_info") if row.fields.get("extra_info") is not None else None
    index = number
    if extra is not None and extra.fields.get("index") is not None:
        index = extra.count("index", least=0)
    return Target(row.unique_id(index), answer)


def _question(row: _Line) -> Question:
    hops = 0
    if row.fields.get("metadata") is not None:
        metadata = row.inside("metadata")
        if metadata.fields.get("hops") is not None:
            hops = metadata.count("hops", least=0)
    return Question(row.unique_id(), row.text("question"), tuple(row.texts("golden_answers")), hops)


@dataclass
class _Line:
    """One JSON object of a file, and where it stands."""

    path: Path
    number: int
    fields: dict[str, Any]
    seen: dict[str, int]
    prefix: str = ""

    def fail(self, name: str, rule: str, found: str) -> NoReturn:
        """Refuse this row because of field `name`."""
        where = f"{self.path}, line {self.number}, field {self.prefix}{name}"
        raise InputError(rule, f"{where}: {found}", "correct that line")

    def _get(self, name: str) -> Any:
        if name not in self.fields:
            self.fail(name, f"every row has the field {self.prefix}{name}", "not there")
        return self.fields[name]

    def text(self, name: str, empty: bool = False) -> str:
        """A string that is valid Unicode and, unless `empty` is allowed, not blank."""
        return self._text(name, self._get(name), empty)

    def texts(self, name: str) -> list[str]:
        """A list of one or more strings, none of them blank."""
        value = self._get(name)
        if not isinstance(value, list) or not value:
            self.fail(name, f"{self.prefix}{name} is a list of at least one string", _show(value))
        return [self._text(name, item, False) for item in value]

    def _text(self, name: str, value: Any, empty: bool) -> str:
        if not isinstance(value, str):
            self.fail(name, f"{self.prefix}{name} is a string", _show(value))
        if not empty and not value.strip():
            self.fail(name, f"{self.prefix}{name} is not empty", _show(value))
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            self.fail(name, f"{self.prefix}{name} is valid Unicode", "half of a surrogate pair")
        return value

    def count(self, name: str, least: int) -> int:
        """An integer of at least `least`, also when written as a string (SSP writes "2")."""
        value = self._get(name)
        if isinstance(value, str) and value.strip().isdecimal():
            value = int(value) if len(value) < 10 else value
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.fail(name, f"{self.prefix}{name} is an integer of at least {least}", _show(value))
        return value

    def inside(self, name: str) -> _Line:
        """The object under `name`."""
        value = self._get(name)
        if not isinstance(value, dict):
            self.fail(name, f"{self.prefix}{name} is an object", _show(value))
        return _Line(self.path, self.number, value, self.seen, f"{self.prefix}{name}.")

    def unique_id(self, default: int | None = None) -> str:
        """The row's `id` (string or integer), or `default`; refused when an earlier line had it."""
        value = self._get("id") if default is None else self.fields.get("id", default)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        value = self._text("id", value, False)
        if value in self.seen:
            self.fail("id", "ids are unique in a file", f"{_show(value)}, also on line {self.seen[value]}")
        self.seen[value] = self.number
        return value


def _rows(path: str | Path) -> Iterator[_Line]:
    path = Path(path)
    seen: dict[str, int] = {}
    for number, raw in _lines(path):
        where = f"{path}, line {number}"
        try:
            value = json.loads(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise InputError("a data file is UTF-8", f"{where}, byte {error.start}", "save it as UTF-8") from error
        except (ValueError, RecursionError) as error:
            reason = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
            raise InputError("every line is one JSON object", f"{where}: {reason}", "correct that line") from error
        if not isinstance(value, dict):
            raise InputError("every line is one JSON object", f"{where}: {_show(value)}", "correct that line")
        yield _Line(path, number, value, seen)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Non-blank lines with their numbers from 1. InputError for a file that cannot be read."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            for number, raw in enumerate(stream, start=1):
                raw = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
                if raw.strip():
                    yield number, raw
    except FileNotFoundError as error:
        raise InputError("a data file must exist", str(path), "check the path") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError("a data file must be readable", f"{path}: {error}", "check the file") from error


def _not_empty(path: str | Path, rows: list[T]) -> list[T]:
    if not rows:
        raise InputError("a data file has at least one row", f"{path} has none", "check the file")
    return rows


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 60 else text[:57] + "..."
