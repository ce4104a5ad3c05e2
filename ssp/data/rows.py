"""Rows of data files (jsonl, also packed, and parquet) and typed access to their columns. A bad one
is an InputError that names the file, the line (from 1) or the parquet row (from 0), and the
column."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import shlex
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NoReturn, cast

from ssp.base.errors import InputError, hold
from ssp.base.published import command

ROW_BYTES = 1_000_000
"""Longest line, and longest text of a column; a longer one is a file of another kind, or a document
in one piece."""

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
PACKED = (*_OPENERS, ".zst")
"""Endings of packed files."""

_MAGIC = {
    b"\x1f\x8b": ".gz",
    b"BZh": ".bz2",
    b"\xfd7zXZ": ".xz",
    b"(\xb5/\xfd": ".zst",
    b"PAR1": ".parquet",
}
"""How the files of an ending begin."""

_UNPACK = {".gz": "gzip -dc", ".bz2": "bzip2 -dc", ".xz": "xz -dc", ".zst": "zstd -dc"}
"""What unpacks a file of an ending in a shell."""

_OTHERS = {
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"PK\x03\x04": "a zip archive",
    b"ARROW1": "an arrow file",
    b"\xff\xff\xff\xff": "an arrow stream",
}
"""How files begin that are no rows, but hold some."""


_ODD = re.compile(r"[^\w-]+")
"""What a figure's name does not take."""


@dataclass(frozen=True)
class Row:
    """One row. `index` counts rows from 0; `place` is "line N" or "row N"; `prefix` is the path of
    an inner object."""

    path: Path
    place: str
    index: int
    fields: dict[str, Any]
    prefix: str = ""

    def fail(
        self, name: str, rule: str, found: str, next_step: str = "correct that row"
    ) -> NoReturn:
        """Refuse this row because of column `name`."""
        raise InputError(
            rule, f"{self.path}, {self.place}, field {self.prefix}{name}: {found}", next_step
        )

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


def rows(path: str | Path) -> Iterator[Row]:
    """Every row of a file: `.parquet`, else one JSON object a line. InputError for a file that
    cannot be read."""
    path = Path(path)
    if path.suffix == ".parquet":
        yield from _parquet(path)
        return
    for index, (number, _, raw) in enumerate(lines(path)):
        yield parse(path, number, index, raw)


def show(value: Any, longest: int = 60) -> str:
    """A value as short ASCII text, for a message."""
    text = json.dumps(value, ensure_ascii=True, default=repr)
    return text if len(text) <= longest else text[: longest - 3] + "..."


def parse(path: Path, number: int, index: int, raw: bytes) -> Row:
    """The row in `raw`, line `number` of a file. InputError unless it is one JSON object."""
    where = f"{path}, line {number}"
    rule = "every line is one JSON object"
    step = _lined(path, raw) if index == 0 else "correct that line"
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        source, made = shlex.quote(str(path)), shlex.quote(str(_made(path)))
        step = f"save it as UTF-8: iconv -f ITS-ENCODING -t UTF-8 {source} > {made}"
        raise InputError("a data file is UTF-8", f"{where}, byte {error.start}", step) from error
    except (ValueError, RecursionError) as error:
        raise InputError(rule, f"{where}: {error}", step) from error
    if not isinstance(value, dict):
        raise InputError(rule, f"{where}: {show(value)}", step)
    return Row(path, f"line {number}", index, value)


def _lined(path: Path, raw: bytes) -> str:
    """What makes lines of JSON of a file that begins with `raw` and is none."""
    source, made = shlex.quote(str(path)), shlex.quote(str(_made(path)))
    bare, given, before = path, "", f" < {source}"
    if path.suffix in PACKED:
        bare, given, before = path.with_suffix(""), f"{_UNPACK[path.suffix]} {source} | ", ""
    if raw.lstrip().startswith(b"["):
        return f"make lines of its array: {given}jq -c '.[]'{before} > {made}"
    if raw.rstrip().endswith(b"},"):
        return (
            f"remove the commas between its lines: {given}sed 's/,[[:space:]]*$//'{before} > {made}"
        )
    if raw.lstrip().startswith(b"{"):
        tables = "of columns, pandas: to_json(orient='records', lines=True)"
        return (
            f"correct that line; make one line of an object: {given}jq -c .{before} > {made};"
            f" {tables}"
        )
    if bare.suffix in (".csv", ".tsv"):
        # Excel begins a table with a byte order mark.
        reader = "csv.DictReader(open(0, encoding='utf-8-sig', newline='')"
        reader += ", delimiter='\\t')" if bare.suffix == ".tsv" else ")"
        program = f"import csv, json; [print(json.dumps(row)) for row in {reader}]"
        named = "its first line names the columns, or put such a line before it"
        return f'make lines of its table ({named}): {given}python3 -c "{program}"{before} > {made}'
    if bare.suffix == ".txt":
        return f"make a target of each line: {given}jq -cR '{{ground_truth: .}}'{before} > {made}"
    if raw.startswith(b"version https://git-lfs"):
        return "it stands for a file that was not fetched: git lfs pull"
    return "correct that line, or give a file of JSON lines or parquet"


def _made(path: Path) -> Path:
    """A name beside `path` for its rows, which no file has: a shell empties what it writes to
    before it reads."""
    bare = path.with_suffix("") if path.suffix in PACKED else path
    made = bare.with_suffix(".jsonl")
    number = 2
    while made.exists():
        made = bare.with_suffix(f".{number}.jsonl")
        number += 1
    return made


def _refuse_other(path: Path, raw: bytes) -> None:
    """InputError for a file of another kind, which begins with `raw`, with what makes rows of
    it."""
    source, rows_of = shlex.quote(str(path)), shlex.quote(str(path.with_suffix(".parquet")))
    kind = next((name for magic, name in _OTHERS.items() if raw.startswith(magic)), "")
    if raw[257:262] == b"ustar":
        kind, step = "a tar archive", "take the file out: tar -xf, or ssp download --unpack"
    elif kind == "UTF-16":
        step = (
            f"save it as UTF-8: iconv -f UTF-16 -t UTF-8 {source} > {shlex.quote(str(_made(path)))}"
        )
    elif kind == "a zip archive":
        step = f"take the file out: unzip {source}"
    elif kind:
        read = "ipc.open_stream(memory_map(a)).read_all()"
        if kind == "an arrow file":
            read = "feather.read_table(a)"
        imports = "import sys; from pyarrow import feather, ipc, memory_map, parquet"
        program = f"{imports}; _, a, b = sys.argv; parquet.write_table({read}, b)"
        step = f'make parquet of it: python3 -c "{program}" {source} {rows_of}'
    else:
        return
    rule = "a data file is rows in UTF-8, packed or not, or parquet"
    raise InputError(rule, f"{path} is {kind}", step)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs. ValueError where a key comes twice: the last value would hide the
    other."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {show(twice)} stands there twice")
    return made


def lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Lines of a file that are not blank: number from 1, byte where it starts in the unpacked file,
    and the line. InputError for a file that cannot be read or unpacked, or a line above
    ROW_BYTES."""
    number = start = 0
    try:
        with _open(path) as stream:
            while raw := stream.readline(ROW_BYTES + 1):
                number += 1
                if number == 1:
                    _refuse_other(path, raw)
                if number == 1 and len(raw) > ROW_BYTES and raw.lstrip().startswith(b"["):
                    rule = "every line is one JSON object"
                    begins = show(raw[:40].decode(errors="replace"))
                    raise InputError(rule, f"{path}, line 1: {begins}", _lined(path, raw))
                if len(raw) > ROW_BYTES:
                    rule = f"a line of a data file has at most {ROW_BYTES:,} bytes"
                    step = "cut that row, documents into passages"
                    raise InputError(rule, f"{path}, line {number}", step)
                end = start + len(raw)
                raw = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
                if raw.strip():
                    yield number, end - len(raw), raw
                start = end
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise _unreadable(path, f"after line {number}: {error}", error) from error


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as stream:
        head = stream.read(8)
    kind = next((ending for magic, ending in _MAGIC.items() if head.startswith(magic)), "")
    if head and kind != (path.suffix if path.suffix in PACKED else ""):
        bare = path.with_suffix("") if path.suffix in PACKED else path
        rule = "a data file is readable by its ending"
        step = shlex.join(["mv", str(path), f"{bare}{kind}"])
        raise InputError(rule, f"{path}, which is {kind or 'not packed'}", step)
    if path.suffix in _OPENERS:
        return cast(IO[bytes], _OPENERS[path.suffix](path, "rb"))
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
            names = file.schema_arrow.names
            rule = "the columns of a data file have different names"
            differ = len(set(names)) == len(names)
            hold(differ, rule, f"{path}: {', '.join(names)}", "rename or drop one of them")
            for batch in file.iter_batches(batch_size=1024):
                for fields in batch.to_pylist():
                    yield Row(path, f"row {index}", index, fields)
                    index += 1
    except (OSError, ValueError, OverflowError, pyarrow.ArrowException) as error:
        told = " ".join(str(error).split())
        raise _unreadable(path, f"after row {index}: {told}", error) from error


def _unreadable(path: Path, reason: str, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError):
        step = command(str(path)) or "check the path"
        return InputError("a data file must exist", str(path), step)
    if path.is_dir():
        endings = (".jsonl", ".parquet", *PACKED)
        inside = sorted(file.name for file in path.iterdir() if file.suffix in endings)
        shown = ", ".join(inside[:5]) or "no jsonl or parquet"
        rule = "a data file is readable, not a folder"
        return InputError(rule, f"{path}, which holds {shown}", "name a file in it")
    kind = "jsonl, packed or not"
    if path.suffix == ".parquet":
        kind = "parquet with text in UTF-8 and dates in range"
    return InputError(f"a data file must be readable {kind}", f"{path}, {reason}", "check the file")
