"""Transcripts and token logs in parquet: one file a block of episodes, one row an episode (law 10),
an exact round trip of the token log. Of a document only its id is kept: its text is in the
transcript."""

import itertools
from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter
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
_PLAIN = {
    "attempt": pa.int32(),
    "seed": pa.int64(),
    "response_at": pa.int32(),
    "outcome": pa.string(),
}
_LISTS = {"queries": pa.string(), "tools": pa.string(), "hits": pa.int32(), "asked": pa.int32()}
_LISTS |= {"documents": pa.string(), **{name: kind for name, (kind, _) in _TOKENS.items()}}
_LISTS["drops"] = pa.list_(pa.int32())
ADDED: dict[str, Any] = {"tools": list, "asked": list, "detail": str}
"""Columns that files of before do not have: an empty one stands there then."""
_FIELDS = [pa.field(name, pa.string(), nullable=name == "final") for name in _TEXTS]
_FIELDS += [pa.field(*item) for item in _PLAIN.items()]
SCHEMA = pa.schema([*_FIELDS, *[pa.field(name, pa.list_(kind)) for name, kind in _LISTS.items()]])


def write(path: str | Path, episodes: Sequence[Episode]) -> None:
    """Write `episodes`, in order, as rows 0, 1, ... of a new file (zstd), complete or not at all.
    Makes the folder."""
    logs = [e.log.packed() for e in episodes]
    offsets = pa.array(np.cumsum([0, *[len(log["kinds"]) for log in logs]], dtype=np.int32))
    columns = []
    for field in SCHEMA:
        if field.name in _TOKENS:
            kind, dtype = _TOKENS[field.name]
            flat = np.frombuffer(b"".join([log[field.name] for log in logs]), dtype)
            columns.append(pa.ListArray.from_arrays(offsets, pa.array(flat, kind)))
            continue
        if field.name == "documents":
            values: list[Any] = [[document.id for document in e.documents] for e in episodes]
        elif field.name == "drops":
            values = [e.log.drops for e in episodes]
        else:
            values = list(map(attrgetter(field.name), episodes))
        columns.append(pa.array(values, field.type))
    table = pa.Table.from_arrays(columns, schema=SCHEMA)
    with whole(Path(path)) as aside:  # whole files are read: statistics of their parts help nobody
        pq.write_table(
            table, aside, compression="zstd", use_dictionary=False, write_statistics=False
        )


def read(path: str | Path) -> list[Episode]:
    """The episodes of a file, in row order; documents have their id only. InputError for a missing
    or foreign file."""
    found = columns(path, SCHEMA.names)
    for row in found:
        tokens = {name: row.pop(name) for name in _TOKENS}
        row["log"] = TokenLog(
            **tokens, drops=[(at, start, end) for at, start, end in row.pop("drops")]
        )
        row["documents"] = [Document(id, "") for id in row["documents"]]
        row |= {name: row[name] or empty() for name, empty in ADDED.items()}
        row["outcome"] = row["outcome"] and Outcome(row["outcome"])
    return [Episode(**row) for row in found]


def columns(path: str | Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """These columns of a file, in row order: a reader of finals and searches needs no tokens.
    InputError as `read`."""
    rule, step = (
        "an episodes file must be parquet with the episode columns",
        "give a file of a run's episodes folder",
    )
    with holding((OSError, pa.ArrowException), rule, lambda error: f"{path} ({error})", step):
        # read_table would make them null
        missing = set(names) - set(ADDED) - set(pq.read_schema(path).names)
        if missing:
            raise pa.ArrowInvalid(f"no column {min(missing)}")
        return list(pq.read_table(path, columns=list(names), schema=SCHEMA).to_pylist())


def damaged(
    folder: Path, places: Iterable[tuple[str, int, str]], whole: bool = True
) -> dict[str, str]:
    """File → what is wrong with it, of those in `folder` that hold these episodes: file, row and
    id, in order. Without `whole` only the end of each is read, which a file that was cut lacks."""
    found = {}
    for file, of_file in itertools.groupby(places, key=itemgetter(0)):
        expected = {row: id_ for _, row, id_ in of_file}
        if not (folder / file).is_file():
            found[file] = "gone"
            continue
        try:
            table = pq.read_table(folder / file) if whole else None
            count = pq.read_metadata(folder / file).num_rows
        except (OSError, pa.ArrowException):
            found[file] = "damaged"
            continue
        ids = table["id"].to_pylist() if table is not None and "id" in table.column_names else None
        if max(expected) >= count or (
            whole and (ids is None or any(ids[at] != id_ for at, id_ in expected.items()))
        ):
            found[file] = "of other episodes"
    return found
