"""Data files opened, unpacked and cut into lines. What is no data file is refused with what makes
rows of it."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import shlex
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn, cast

from ssp.base.errors import InputError
from ssp.base.published import command
from ssp.data.rows import ROW_BYTES, Row, show

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


def bare(path: Path) -> Path:
    """`path` without the ending of a packed file."""
    return path.with_suffix("") if path.suffix in PACKED else path


@contextmanager
def reading(path: Path, reached: Callable[[], str] = lambda: "line 0") -> Iterator[None]:
    """InputError for what cannot be read, unpacked or decoded behind the place `reached()`."""
    try:
        yield
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise unreadable(path, f"after {reached()}: {error}", error) from error
    except UnicodeDecodeError as error:
        _refuse_bytes(path, f"{path}, after {reached()}", error)


def parse(path: Path, number: int, index: int, raw: bytes) -> Row:
    """The row in `raw`, line `number` of a file. InputError unless it is one JSON object."""
    where = f"{path}, line {number}"
    rule = "every line is one JSON object"
    step = _lined(path, raw) if index == 0 else "correct that line"
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=once)
    except UnicodeDecodeError as error:
        _refuse_bytes(path, f"{where}, byte {error.start}", error)
    except (ValueError, RecursionError) as error:
        raise InputError(rule, f"{where}: {error}", step) from error
    if not isinstance(value, dict):
        raise InputError(rule, f"{where}: {show(value)}", step)
    return Row(path, f"line {number}", index, value)


def _refuse_bytes(path: Path, where: str, error: UnicodeDecodeError) -> NoReturn:
    """InputError for bytes that are no UTF-8."""
    source, made = shlex.quote(str(path)), shlex.quote(str(_made(path)))
    step = f"save it as UTF-8: iconv -f ITS-ENCODING -t UTF-8 {source} > {made}"
    raise InputError("a data file is UTF-8", where, step) from error


def _lined(path: Path, raw: bytes) -> str:
    """What makes lines of JSON of a file that begins with `raw` and is none."""
    source, made = shlex.quote(str(path)), shlex.quote(str(_made(path)))
    given, before = "", f" < {source}"
    if path.suffix in PACKED:
        given, before = f"{_UNPACK[path.suffix]} {source} | ", ""
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
    if bare(path).suffix == ".txt":
        return f"make a target of each line: {given}jq -cR '{{ground_truth: .}}'{before} > {made}"
    if raw.startswith(b"version https://git-lfs"):
        return "it stands for a file that was not fetched: git lfs pull"
    return "correct that line, or give a file of JSON lines, an array, a table or parquet"


def _made(path: Path) -> Path:
    """A name beside `path` for its rows, which no file has: a shell empties what it writes to
    before it reads."""
    made = bare(path).with_suffix(".jsonl")
    number = 2
    while made.exists():
        made = bare(path).with_suffix(f".{number}.jsonl")
        number += 1
    return made


def refuse_other(path: Path, raw: bytes) -> None:
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


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
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
    with reading(path, lambda: f"line {number}"):
        with opened(path) as stream:
            while raw := stream.readline(ROW_BYTES + 1):
                number += 1
                if len(raw) > ROW_BYTES:
                    rule = f"a line of a data file has at most {ROW_BYTES:,} bytes"
                    step = "cut that row, documents into passages"
                    raise InputError(rule, f"{path}, line {number}", step)
                end = start + len(raw)
                raw = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
                if raw.strip():
                    yield number, end - len(raw), raw
                start = end


def opened(path: Path) -> IO[bytes]:
    """The unpacked bytes of a file. InputError where its ending is not that of its kind."""
    with path.open("rb") as stream:
        head = stream.read(8)
    kind = next((ending for magic, ending in _MAGIC.items() if head.startswith(magic)), "")
    if head and kind != (path.suffix if path.suffix in PACKED else ""):
        rule = "a data file is readable by its ending"
        step = shlex.join(["mv", str(path), f"{bare(path)}{kind}"])
        raise InputError(rule, f"{path}, which is {kind or 'not packed'}", step)
    if path.suffix in _OPENERS:
        return cast(IO[bytes], _OPENERS[path.suffix](path, "rb"))
    if path.suffix == ".zst":
        import pyarrow

        return io.BufferedReader(pyarrow.input_stream(str(path), compression="zstd"))
    return path.open("rb")


def unreadable(path: Path, reason: str, error: Exception) -> InputError:
    """What is said of a file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        step = command(str(path)) or "check the path"
        return InputError("a data file must exist", str(path), step)
    kind = "jsonl, packed or not"
    if path.suffix == ".parquet":
        kind = "parquet with text in UTF-8 and dates in range"
    return InputError(f"a data file must be readable {kind}", f"{path}, {reason}", "check the file")
