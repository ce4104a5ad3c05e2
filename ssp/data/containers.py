"""The rows of data files: JSON lines, a JSON array or object, a table (csv, tsv) or parquet, packed or
not; one file, or the numbered parts of one. What a row holds is the matter of its reader."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from ssp.base.errors import InputError, hold
from ssp.data.opened import (
    bare,
    lines,
    once,
    opened,
    parse,
    reading,
    refuse_other,
    unreadable,
)
from ssp.data.rows import ROW_BYTES, Row, show

TABLES = {".csv": ",", ".tsv": "\t"}
"""Endings of tables, and what parts their cells."""

ENDINGS = (".jsonl", ".json", *TABLES, ".parquet")
"""Endings of data files that are not packed."""

DATA_FILES = re.compile(r"\.(jsonl|json|csv|tsv|parquet)(\.(gz|bz2|xz|zst))?$")
"""The ending of a data file."""

COLLECTION = ("pid", "passage")
"""Columns of a .tsv whose first cell is a number: MS MARCO's collection, which has no header and no
quotation marks."""

OBJECT_BYTES = 1 << 28
"""Longest file that is one JSON object, which is read whole."""

_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.")
"""The number of a shard as Hugging Face writes it."""
_GAP = re.compile(r"[\s,]*")
_BLOCK = 1 << 20
csv.field_size_limit(ROW_BYTES)


def rows(path: str | Path) -> Iterator[Row]:
    """Every row of the files that `path` names (`files`), numbered through. InputError for a file
    that cannot be read."""
    before = 0
    for file in files(Path(path)):
        count = 0
        for row in _rows(file):
            count += 1
            yield replace(row, index=before + row.index) if before else row
        before += count


def _rows(path: Path) -> Iterator[Row]:
    shape = _shape(path)
    if shape == ".parquet":
        return _parquet(path)
    if shape in TABLES:
        return _table(path, TABLES[shape])
    if shape == "[":
        return _array(path)
    objects = _objects(path) if shape == "{" else None
    if objects is not None:
        return objects
    return (parse(path, number, at, raw) for at, (number, _, raw) in enumerate(lines(path)))


def files(path: Path) -> list[Path]:
    """The files that `path` names: itself, what a pattern (`train-*.parquet`) matches, or those of a
    folder (or of its `data/`) whose names differ in their numbers alone. InputError for a pattern
    that matches nothing, a folder of different things, and shards of which one is missing."""
    if "*" in path.name:
        inside = sorted(path.parent.glob(path.name))
        hold(inside, "a pattern of files matches one", path, "check the path")
    elif path.is_dir():
        inside = _data_files(path) or _data_files(path / "data")
        kinds = {re.sub(r"\d+", "#", file.name) for file in inside}
        if len(kinds) != 1 or "#" not in kinds.pop():
            shown = ", ".join(str(file.relative_to(path)) for file in inside[:5])
            rule = "a data file is readable, not a folder of different files"
            step = f"name a file in it, or a pattern of its files: '{path}/train-*.parquet'"
            raise InputError(rule, f"{path}, which holds {shown or 'no data files'}", step)
    else:
        return [path]
    first = _SHARD.search(inside[0].name)
    for number in range(int(first[2]) if first else 0):
        assert first is not None
        name = inside[0].name
        part = inside[0].with_name(f"{name[: first.start(1)]}{number:05d}{name[first.end(1) :]}")
        hold(part.is_file(), "a set of shards is whole", f"{part} is missing", "fetch it too")
    return inside


def is_lines(path: Path) -> bool:
    """Whether `path` is one file of JSON lines, packed or not."""
    return "*" not in path.name and not path.is_dir() and _shape(path) == ""


def _data_files(folder: Path) -> list[Path]:
    inside = folder.iterdir() if folder.is_dir() else ()
    return sorted(file for file in inside if DATA_FILES.search(file.name))


def _shape(path: Path) -> str:
    """How a file is read: by its ending, or by how it begins: "[" an array, "{" one object, perhaps,
    in a .json, "" lines."""
    if path.suffix == ".parquet":
        return path.suffix
    with reading(path), opened(path) as stream:
        start = stream.readline(ROW_BYTES)
        second = stream.readline(ROW_BYTES)
    refuse_other(path, start)
    ending = bare(path).suffix
    if ending in TABLES:
        return ending
    start = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"["):
        return "["
    lined = ending != ".json" or second.lstrip().startswith(b"{")
    return "{" if start.startswith(b"{") and not lined else ""


def _table(path: Path, delimiter: str) -> Iterator[Row]:
    """Rows of a table whose first line names its columns. Every cell is a text."""
    index = 0
    with reading(path, lambda: f"row {index}"), opened(path) as raw:
        text = io.TextIOWrapper(raw, "utf-8-sig", newline="")
        first = text.readline(ROW_BYTES)
        headless = delimiter == "\t" and first.partition("\t")[0].isdecimal()
        table = csv.reader(
            chain([first], text),
            delimiter=delimiter,
            quoting=csv.QUOTE_NONE if headless else csv.QUOTE_MINIMAL,
            strict=True,
        )
        rule = "a table has one cell a column in each row, and names its columns in the first line"
        try:
            names = list(COLLECTION) if headless else next(table, [])
            differ = len(set(names)) == len(names)
            hold(differ, "the columns of a data file have different names", path, "rename one")
            for cells in table:
                place = f"line {table.line_num}"
                counts = f"{path}, {place}: {len(cells)} cells for {show(names, 300)}"
                hold(len(cells) in (0, len(names)), rule, counts, "correct that row")
                if cells:
                    yield Row(path, place, index, dict(zip(names, cells, strict=True)))
                    index += 1
        except csv.Error as error:
            where = f"{path}, line {table.line_num}: {error}"
            raise InputError(rule, where, "correct that row") from error


def _array(path: Path) -> Iterator[Row]:
    """Items of a JSON array, one after the other, so that it may be larger than memory."""
    decode = json.JSONDecoder(object_pairs_hook=once).raw_decode
    rule = "every item of a JSON array is one object, and the array is whole"
    index = 0
    with reading(path, lambda: f"row {index}"), opened(path) as raw:
        stream = io.TextIOWrapper(raw, "utf-8-sig")
        text = stream.read(_BLOCK).lstrip().removeprefix("[")
        at = 0
        while True:
            gap = _GAP.match(text, at)
            at = gap.end() if gap else at
            if text.startswith("]", at):
                return
            where = f"{path}, row {index}"
            try:
                value, at = decode(text, at)
            except json.JSONDecodeError as error:
                long = len(text) - at > ROW_BYTES
                more = "" if long else stream.read(_BLOCK)
                hold(more, rule, f"{where}: {error.msg}", "correct that row")
                text, at = text[at:] + more, 0
                continue
            except (ValueError, RecursionError) as error:
                raise InputError(rule, f"{where}: {error}", "correct that row") from error
            hold(isinstance(value, dict), rule, f"{where}: {show(value)}", "correct that row")
            yield Row(path, f"row {index}", index, value)
            index += 1


def _objects(path: Path) -> Iterator[Row] | None:
    """Rows of a .json file that is one object (`_within`); None where it is JSON lines."""
    with reading(path), opened(path) as stream:
        raw = stream.read(OBJECT_BYTES)
    step = "make JSON lines of what is in it, for example with jq"
    hold(len(raw) < OBJECT_BYTES, "a file of one JSON object has at most 256 MB", path, step)
    try:
        value = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=once)
    except (ValueError, RecursionError):
        return None
    places = enumerate(_within(value))
    return (Row(path, f"row {index}", index, fields) for index, fields in places)


def _within(value: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows in an object: the list under `data` (SQuAD's, whose questions lie in paragraphs, and
    TriviaQA's), columns by key (pandas, HotpotQA's predictions), or the object alone."""
    inside = value.get("data", value.get("Data"))
    if isinstance(inside, list) and all(isinstance(item, dict) for item in inside):
        items: list[dict[str, Any]] = []
        for item in inside:
            paragraphs = item.get("paragraphs")
            for paragraph in paragraphs or ():
                items += paragraph["qas"]
            if paragraphs is None:
                items.append(item)
        return items
    columns = list(value.values())
    keyed = "answer" in value or "question" in value
    keyed = keyed and all(isinstance(column, dict) for column in columns)
    if not keyed or any([*column] != [*columns[0]] for column in columns):
        return [value]
    rows_by_key = []
    for key in columns[0]:
        cells = {name: column[key] for name, column in value.items()}
        rows_by_key.append({"id": key, **cells})
    return rows_by_key


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
        raise unreadable(path, f"after row {index}: {told}", error) from error
