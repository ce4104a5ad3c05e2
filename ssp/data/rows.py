"""Typed access to the columns of a row. A bad one is an InputError that names the file, the line
(from 1) or the row (from 0), and the column."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from ssp.base.errors import InputError

ROW_BYTES = 1_000_000
"""Longest line, and longest text of a column; a longer one is a file of another kind, or a document
in one piece."""

_ODD = re.compile(r"[^\w-]+")
"""What a figure's name does not take."""


@dataclass(frozen=True)
class Row:
    """One row. `index` counts rows from 0; `place` is "line N" or "row N"; `prefix` is the path of
    an inner object; `form` says whose columns were renamed to ours."""

    path: Path
    place: str
    index: int
    fields: dict[str, Any]
    prefix: str = ""
    form: str = ""

    def fail(
        self, name: str, rule: str, found: str, next_step: str = "correct that row"
    ) -> NoReturn:
        """Refuse this row because of column `name`."""
        place = f"{self.path}, {self.place}"
        if self.form:
            place += f" (read as {self.form})"
        raise InputError(rule, f"{place}, field {self.prefix}{name}: {found}", next_step)

    def has(self, name: str) -> bool:
        """True when the column is there and not null."""
        return self.fields.get(name) is not None

    def lacks(self) -> str:
        """What a message finds where a column is not there: the columns that are."""
        return f"not there, but {show(list(self.fields), 300)}"

    def _get(self, name: str) -> Any:
        step = f"rename the column that holds it to {name}, or correct that row"
        if name not in self.fields:
            self.fail(name, f"every row has the field {self.prefix}{name}", self.lacks(), step)
        return self.fields[name]

    def text(self, name: str, empty: bool = False) -> str:
        """A string that is valid Unicode and, unless `empty` is allowed, not blank."""
        return self._text(name, self._get(name), empty)

    def texts(self, name: str) -> list[str]:
        """A list of strings, or a string alone; they may be blank, and a null in a list is."""
        value = self._get(name)
        items = value if isinstance(value, list) else [value]
        texts = ["" if item is None and items is value else item for item in items]
        for text in texts:
            if not isinstance(text, str):
                kind = f"an object of {', '.join(text)}" if isinstance(text, dict) else show(text)
                rule = f"{self.prefix}{name} is a text, or a list of texts"
                self.fail(name, rule, kind, "write it so, for example with jq")
        return [self._text(name, text, True) for text in texts]

    def key(self, name: str) -> str:
        """A string or an integer, as a string."""
        value = self._get(name)
        if isinstance(value, str):
            return self._text(name, value, False)
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(name, f"{self.prefix}{name} is a string or an integer", show(value))
        return str(value)

    def label(self, name: str) -> str:
        """A string, or "" when the column is not there."""
        return self.text(name, empty=True) if self.has(name) else ""

    def category(self, name: str) -> str:
        """A column of the row or of its metadata, and its value, as a figure is called; "" where it
        is not there."""
        for place in (self, self.maybe("metadata"), self.maybe("extra_info")):
            if place.has(name):
                return f"{name}.{_ODD.sub('_', place.key(name))}"
        return ""

    def _text(self, name: str, value: Any, empty: bool) -> str:
        if not isinstance(value, str):
            self.fail(name, f"{self.prefix}{name} is a string", show(value))
        if len(value) >= ROW_BYTES:
            rule = f"{self.prefix}{name} has fewer than {ROW_BYTES:,} characters"
            self.fail(name, rule, f"{len(value):,}")
        if not empty and not value.strip():
            self.fail(name, f"{self.prefix}{name} is not empty", show(value))
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
        # pandas, where other rows have none
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e9:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.fail(name, f"{self.prefix}{name} is an integer of at least {least}", show(value))
        return value

    def inside(self, name: str) -> Row:
        """The object under `name`."""
        value = self._get(name)
        if not isinstance(value, dict):
            step = "correct that row, or rename the column where it is something else"
            self.fail(name, f"{self.prefix}{name} is an object", show(value), step)
        return replace(self, fields=value, prefix=f"{self.prefix}{name}.")

    def maybe(self, name: str) -> Row:
        """The object under `name`, an empty one when the column is not there or null."""
        if self.has(name):
            return self.inside(name)
        return replace(self, fields={}, prefix=f"{self.prefix}{name}.")

    def claim(
        self, value: str, seen: dict[str, str], apart: str = "give each row an id of its own"
    ) -> str:
        """The id `value`, which no row in `seen` (id → file and place) may have had; refused with
        both places. `apart`: what tells the rows of two files apart."""
        if value in seen:
            same = seen[value].startswith(f"{self.path}, ")
            step = "give each row an id of its own" if same else apart
            self.fail("id", "ids are unique", f"{show(value)}, also on {seen[value]}", step)
        seen[value] = f"{self.path}, {self.place}"
        return value


def show(value: Any, longest: int = 60) -> str:
    """A value as short ASCII text, for a message."""
    text = json.dumps(value, ensure_ascii=True, default=repr)
    return text if len(text) <= longest else text[: longest - 3] + "..."
