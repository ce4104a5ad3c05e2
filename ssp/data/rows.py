"""Rows of data files (jsonl, also .gz and .zst, and parquet), each with its place, and typed access to their columns.

Owns how files are opened and how a bad one is refused. Promises an InputError that names the file, the line (from 1) or
the parquet row (from 0), and the column. Refuses to repair: nothing is skipped but blank lines and a byte order mark.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NoReturn, cast

from ssp.base.errors import InputError

ROW_BYTES = 1_000_000
"""Longest line, and longest text of a column; a longer one is a file of another kind, or a document in one piece."""


@dataclass(frozen=True)
class Row:
    """One row. `index` counts rows from 0; `place` is "line N" or "row N"; `prefix` is the path of an inner object."""

    path: Path
    place: str
    index: int
    fields: dict[str, Any]
    prefix: str = ""

    def fail(self, name: str, rule: str, found: str, next_step: str = "correct that row") -> NoReturn:
        """Refuse this row because of column `name`."""
        raise InputError(rule, f"{self.path}, {self.place}, field {self.prefix}{name}: {found}", next_step)

    def has(self, name: str) -> bool:
        """True when the column is there and not null."""
        return self.fields.get(name) is not None

    def _get(self, name: str) -> Any:
        if name not in self.fields:
            self.fail(name, f"every row has the field {self.prefix}{name}", "not there")
        return self.fields[name]

    def text(self, name: str, empty: bool = False) -> str:
        """A string that is valid Unicode and, unless `empty` is allowed, not blank."""
        return self._text(name, self._get(name), empty)

    def texts(self, name: str, empty: bool = False) -> list[str]:
        """A list of one or more strings, none of them blank unless `empty`."""
        value = self._get(name)
        if not isinstance(value, list) or not value:
            self.fail(name, f"{self.prefix}{name} is a list of at least one string", show(value))
        return [self._text(name, item, empty) for item in value]

    def one_or_more(self, name: str, empty: bool = False) -> list[str]:
        """A string, or a list of them."""
        return self.texts(name, empty) if isinstance(self._get(name), list) else [self.text(name, empty)]

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

    def _text(self, name: str, value: Any, empty: bool) -> str:
        if not isinstance(value, str):
            self.fail(name, f"{self.prefix}{name} is a string", show(value))
        if len(value) >= ROW_BYTES:
            self.fail(name, f"{self.prefix}{name} has fewer than {ROW_BYTES:,} characters", f"{len(value):,}")
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
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e9:  # pandas, where other rows have none
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.fail(name, f"{self.prefix}{name} is an integer of at least {least}", show(value))
        return value

    def inside(self, name: str) -> Row:
        """The object under `name`."""
        value = self._get(name)
        if not isinstance(value, dict):
            self.fail(name, f"{self.prefix}{name} is an object", show(value))
        return replace(self, fields=value, prefix=f"{self.prefix}{name}.")

    def maybe(self, name: str) -> Row:
        """The object under `name`, an empty one when the column is not there or null."""
        return self.inside(name) if self.has(name) else replace(self, fields={}, prefix=f"{self.prefix}{name}.")

    def claim(self, value: str, seen: dict[str, str], here: str = "") -> str:
        """The id `value`, which no row in `seen` (id → place) may have had; refused with both places.

        `here` says where this row stands when `seen` serves several files.
        """
        if value in seen:
            found = f"{show(value)}, also on {seen[value]}"
            self.fail("id", "ids are unique", found, "correct that row; ssp data convert --source tells files apart")
        seen[value] = here or self.place
        return value


def rows(path: str | Path) -> Iterator[Row]:
    """Every row of a file: `.parquet`, else one JSON object a line. InputError for a file that cannot be read."""
    path = Path(path)
    return _parquet(path) if path.suffix == ".parquet" else _jsonl(path)


def show(value: Any) -> str:
    """A value as short ASCII text, for a message."""
    text = json.dumps(value, ensure_ascii=True, default=repr)
    return text if len(text) <= 60 else text[:57] + "..."


def _jsonl(path: Path) -> Iterator[Row]:
    for index, (number, _, raw) in enumerate(lines(path)):
        yield parse(path, number, index, raw)


def parse(path: Path, number: int, index: int, raw: bytes) -> Row:
    """The row in `raw`, line `number` of a file. InputError unless it is one JSON object."""
    where = f"{path}, line {number}"
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        raise InputError("a data file is UTF-8", f"{where}, byte {error.start}", "save it as UTF-8") from error
    except (ValueError, RecursionError) as error:
        reason = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise InputError("every line is one JSON object", f"{where}: {reason}", "correct that line") from error
    if not isinstance(value, dict):
        raise InputError("every line is one JSON object", f"{where}: {show(value)}", "correct that line")
    return Row(path, f"line {number}", index, value)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ; ValueError for one of which the last value would hide another."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {show(next(name for name in names if names.count(name) > 1))} stands there twice")
    return made


def lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Lines of a file that are not blank: number from 1, byte where it starts in the unpacked file, and the line.

    InputError for a file that cannot be read or unpacked, or a line above ROW_BYTES.
    """
    number = start = 0
    try:
        with _open(path) as stream:
            while raw := stream.readline(ROW_BYTES + 1):
                number += 1
                if len(raw) > ROW_BYTES:
                    rule = f"a line of a data file has at most {ROW_BYTES:,} bytes"
                    raise InputError(rule, f"{path}, line {number}", "cut that row, documents into passages")
                if number == 1 and raw[257:262] == b"ustar":
                    step = "take the file out: tar -xf, or ssp download --unpack"
                    raise InputError("a data file is rows, packed or not", f"{path} holds a tar archive", step)
                end = start + len(raw)
                raw = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
                if raw.strip():
                    yield number, end - len(raw), raw
                start = end
    except FileNotFoundError as error:
        raise InputError("a data file must exist", str(path), "check the path") from error
    except (OSError, EOFError, zlib.error) as error:
        found = f"{path}, after line {number}: {error}"
        raise InputError("a data file must be readable", found, "check the file") from error


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    if path.suffix == ".zst":
        import pyarrow

        return io.BufferedReader(pyarrow.input_stream(str(path), compression="zstd"))
    return path.open("rb")


def _parquet(path: Path) -> Iterator[Row]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    index = 0
    try:
        with ParquetFile(path) as file:
            _differ(path, file.schema_arrow, "")
            for batch in file.iter_batches(batch_size=1024):
                for fields in _decode(path, batch, index):
                    yield Row(path, f"row {index}", index, fields)
                    index += 1
    except FileNotFoundError as error:
        raise InputError("a data file must exist", str(path), "check the path") from error
    except (OSError, pyarrow.ArrowException) as error:
        found = f"{path}, after row {index}: {' '.join(str(error).split())}"
        raise InputError("a data file must be readable parquet", found, "check the file") from error


def _differ(path: Path, fields: Any, prefix: str) -> None:
    """InputError where two columns, or two fields of an object, have one name: the last would hide the other."""
    import pyarrow

    seen: set[str] = set()
    for field in fields:
        if field.name in seen:
            found = f"{path}: {prefix}{show(field.name)} stands there twice"
            raise InputError("the columns of a data file have different names", found, "rename or drop one of them")
        seen.add(field.name)
        inner = field.type
        while hasattr(inner, "value_type"):
            inner = inner.value_type
        if pyarrow.types.is_struct(inner):
            _differ(path, inner, f"{prefix}{field.name}.")


def _decode(path: Path, batch: Any, first: int) -> list[dict[str, Any]]:
    """The batch's rows as dicts; InputError with row and column where a string is not UTF-8, or a date is out of range."""
    try:
        return list(batch.to_pylist())
    except (ValueError, OverflowError) as error:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            for offset, cell in enumerate(column):
                try:
                    cell.as_py()
                except UnicodeDecodeError:
                    where = f"{path}, row {first + offset}, field {name}"
                    raise InputError("a data file is UTF-8", where, "save it as UTF-8") from error
                except (ValueError, OverflowError) as reason:
                    where = f"{path}, row {first + offset}, field {name}: {str(reason).partition('.')[0]}"
                    raise InputError("a data file's values can be read", where, "remove that column") from error
        raise
