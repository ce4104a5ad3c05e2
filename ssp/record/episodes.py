"""Transcripts and token logs in parquet: one file a block of episodes, one row an episode (law 10).
The token log makes an exact round trip. Of a document only its id is kept: its text is in the
transcript."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ssp.base.episode import Document, Episode, Outcome
from ssp.base.errors import holding
from ssp.base.files import whole
from ssp.base.tokenlog import TokenLog

_TEXTS = ("id", "game", "role", "text", "final", "stopped", "cause", "detail")
_TOKENS: dict[str, tuple[pa.DataType, Any]] = {  # in the file, and in memory
    "ids": (pa.int32(), np.int32),
    "kinds": (pa.int8(), np.int8),
    "logprobs": (pa.float32(), np.float64),
    "versions": (pa.int32(), np.int32),
}
_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(_TEXTS, pa.string()),
    "attempt": pa.int32(),
    "seed": pa.int64(),
    "response_at": pa.int32(),
    "outcome": pa.string(),
    "queries": pa.list_(pa.string()),
    "tools": pa.list_(pa.string()),
    "hits": pa.list_(pa.int32()),
    "asked": pa.list_(pa.int32()),
    "documents": pa.list_(pa.string()),
    "earned": pa.list_(pa.float64()),
    **{name: pa.list_(kind) for name, (kind, _) in _TOKENS.items()},
    "drops": pa.list_(pa.list_(pa.int32())),
}
_REQUIRED = {*_TEXTS} - {"final"}
SCHEMA = pa.schema([pa.field(name, _TYPES[name], name not in _REQUIRED) for name in _TYPES])
ADDED: dict[str, Any] = {"tools": list, "asked": list, "detail": str, "earned": list}
"""Columns that files of earlier versions lack → what makes the empty value that stands there."""


def write(path: str | Path, episodes: Sequence[Episode]) -> None:
    """Write `episodes`, in order, as rows 0, 1, ... of a new file (zstd), complete or not at all.
    Makes the folder."""
    logs = [episode.log.packed() for episode in episodes]
    lengths = [len(log["kinds"]) for log in logs]
    offsets = pa.array(np.cumsum([0, *lengths], dtype=np.int32))

    columns = []
    for field in SCHEMA:
        if field.name in _TOKENS:
            kind, dtype = _TOKENS[field.name]
            tokens = np.frombuffer(b"".join([log[field.name] for log in logs]), dtype)
            columns.append(pa.ListArray.from_arrays(offsets, pa.array(tokens, kind)))
            continue
        if field.name == "documents":
            values: list[Any] = [[document.id for document in e.documents] for e in episodes]
        elif field.name == "drops":
            values = [episode.log.drops for episode in episodes]
        else:
            values = [getattr(episode, field.name) for episode in episodes]
        columns.append(pa.array(values, field.type))

    table = pa.Table.from_arrays(columns, schema=SCHEMA)
    with whole(Path(path)) as aside:  # files are read whole: statistics of their parts help nobody
        pq.write_table(
            table, aside, compression="zstd", use_dictionary=False, write_statistics=False
        )


def read(path: str | Path) -> list[Episode]:
    """The episodes of a file, in row order; documents have their id only. InputError for a missing
    or foreign file."""
    episodes = []
    for row in columns(path, SCHEMA.names):
        tokens = {name: row.pop(name) for name in _TOKENS}
        drops = [(at, start, end) for at, start, end in row.pop("drops")]
        row["log"] = TokenLog(**tokens, drops=drops)
        row["documents"] = [Document(id, "") for id in row["documents"]]
        for name, empty in ADDED.items():
            row[name] = row[name] or empty()
        if row["outcome"]:
            row["outcome"] = Outcome(row["outcome"])
        episodes.append(Episode(**row))
    return episodes


def columns(path: str | Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """These columns of a file, in row order: a reader of finals and searches needs no tokens.
    InputError as `read`."""
    rule = "an episodes file must be parquet with the episode columns"
    step = "give a file of a run's episodes folder"
    with holding((OSError, pa.ArrowException), rule, lambda error: f"{path} ({error})", step):
        # read_table would make them null
        missing = set(names) - set(ADDED) - set(pq.read_schema(path).names)
        if missing:
            raise pa.ArrowInvalid(f"no column {min(missing)}")
        table = pq.read_table(path, columns=list(names), schema=SCHEMA)
        return list(table.to_pylist())


def damaged(
    folder: Path, places: Iterable[tuple[str, int, str]], whole: bool = True
) -> dict[str, str]:
    """File → what is wrong with it, of those in `folder` that hold these episodes: file, row and
    id, in order. Without `whole` only the end of each is read, which a file that was cut lacks."""
    faults = {}
    for file, of_file in itertools.groupby(places, key=itemgetter(0)):
        expected = {row: id for _, row, id in of_file}
        fault = _fault(folder / file, expected, whole)
        if fault:
            faults[file] = fault
    return faults


def _fault(path: Path, expected: Mapping[int, str], whole: bool) -> str:
    """What is wrong with a file that should hold these ids at these rows; "" for nothing."""
    if not path.is_file():
        return "gone"
    try:
        count = pq.read_metadata(path).num_rows
        table = pq.read_table(path) if whole else None
    except (OSError, pa.ArrowException):
        return "damaged"
    if max(expected) >= count:
        return "of other episodes"
    if table is not None:
        ids = table["id"].to_pylist() if "id" in table.column_names else [None] * count
        if any(ids[row] != id for row, id in expected.items()):
            return "of other episodes"
    return ""
