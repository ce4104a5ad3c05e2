"""The bank as a file: parquet with all its fields, or a data set's folder as the Hugging Face hub has them.

Promises that what was written reads back as the same records, that a file or folder appears whole or not at all, and
that no export lacks a source and a licence.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.dataset import dataset

from ssp.base.errors import InputError
from ssp.base.files import whole
from ssp.data.readers import Question, read_questions
from ssp.data.writers import write_search_r1
from ssp.game.protocols import training_prompt
from ssp.selfplay.questions.records import FIELDS, VALID, Attempt, Check, Play, Record

DATA = "data/train.parquet"
"""The data of a folder."""

ROWS = 200
"""Records that are written and read at a time: parquet cannot give back 2 GiB of nested text in one piece."""

WRITTEN = """Each question was written by a language-model policy that was given its answer and searched a corpus; a referee
checked it, and a solver tried to answer it by search. Answers were not checked by people."""
PLAYED = "Questions that a solver tried to answer by search; not all of them were written in that run."

_ARROW = {str: pa.string(), int: pa.int32(), float: pa.float64(), bool: pa.bool_()}


def _arrow(hint: Any) -> pa.DataType:
    """The column of a field with this type hint; every column may be null."""
    if isinstance(hint, UnionType):
        (hint,) = set(get_args(hint)) - {NoneType}
    if get_origin(hint) is list:
        return pa.list_(_arrow(*get_args(hint)))
    if is_dataclass(hint):
        return pa.struct({name: _arrow(inner) for name, inner in get_type_hints(hint).items()})
    return _ARROW[hint]


SCHEMA = pa.schema(list(_arrow(Record)))
Writer = Callable[[Path, Sequence[Record]], None]


def write_bank(path: Path, records: Sequence[Record]) -> None:
    """All fields of the records, in order. InputError for one without a source or a licence."""
    for record in records:
        if not record.data_source.strip() or not record.license.strip():
            raise InputError("every question of a bank has a source and a licence", record.id, "say --license")
    with whole(path) as aside, pq.ParquetWriter(aside, SCHEMA, compression="zstd") as writer:
        for at in range(0, len(records), ROWS):
            writer.write_table(pa.Table.from_pylist([asdict(record) for record in records[at : at + ROWS]], SCHEMA))


def write_training(path: Path, records: Sequence[Record]) -> None:
    """Search-R1's training rows, in order."""
    write_search_r1(path, [record.as_question() for record in records], training_prompt())


WRITERS: dict[str, Writer] = {"bank": write_bank, "search-r1": write_training}
"""Format → its writer."""


def write_folder(folder: Path, records: Sequence[Record], kind: str) -> None:
    """A data set's folder: its card, and the records in format `kind`."""
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        (aside / DATA).parent.mkdir(parents=True)
        WRITERS[kind](aside / DATA, records)
        (aside / "README.md").write_text(card(records, kind), encoding="utf-8")
        os.rename(aside, folder)
    except OSError as error:
        if not folder.exists():
            raise
        raise InputError("an export is a new file or folder", folder, "remove it or choose another") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def is_bank(place: Path) -> bool:
    """Whether `place` is an exported file or folder, not a run."""
    return place.suffix == ".parquet" or (place / DATA).is_file()


def read_bank(place: Path) -> list[Record]:
    """The records of an exported file or folder. InputError for one that is missing, or no bank with all fields."""
    return [_record(row) for row in _rows(place, list(FIELDS))]


def read_licenses(place: Path) -> dict[tuple[str, str], str]:
    """(question, first answer) → licence, of an exported file or folder; empty of any other question file."""
    rows = _rows(place, ["question", "answers", "license"]) if _is_whole(place) else ()
    return {(row["question"], row["answers"][0]): row["license"] for row in rows}


def read_accepted(place: Path) -> list[Question]:
    """The questions to play of an exported file or folder: a bank's valid ones, all of any other question file."""
    if not _is_whole(place):
        return read_questions(_file(place))
    rows = _rows(place, ["id", "question", "answers", "verdict", "data_source", "split"])
    return [
        Question(row["id"], row["question"], tuple(row["answers"]), 0, row["data_source"], row["split"])
        for row in rows
        if row["verdict"] == VALID
    ]


def _file(place: Path) -> Path:
    return place / DATA if place.is_dir() else place


def _is_whole(place: Path) -> bool:
    try:
        return "plays" in pq.read_schema(_file(place)).names
    except (OSError, pa.ArrowException):
        return True  # its reader says what is wrong with it


def _rows(place: Path, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """These fields of each record, a few rows in memory at a time."""
    path, hints = _file(place), get_type_hints(Record)
    if not path.is_file():
        raise InputError("a bank's file must exist", path, "check the path")
    try:
        if missing := set(FIELDS) - set(pq.read_schema(path).names):
            raise pa.ArrowInvalid(f"no column {min(missing)}")
        for batch in dataset(path, schema=SCHEMA, format="parquet").to_batches(columns=names, batch_size=ROWS):
            for name in names:
                _check(hints[name], batch.column(name), name)
            yield from batch.to_pylist()
    except (OSError, pa.ArrowException) as error:
        found = f"{path} ({' '.join(str(error).split())})"
        raise InputError("a bank's file has all its fields", found, "export one: ssp bank RUN --export FILE") from error


def _check(hint: Any, column: pa.Array, name: str) -> None:
    """ArrowInvalid for a null in a field whose type hint has none."""
    if isinstance(hint, UnionType):
        return
    if column.null_count:
        raise pa.ArrowInvalid(f"a null in {name}")
    if get_origin(hint) is list:
        _check(get_args(hint)[0], column.flatten(), name)
    if is_dataclass(hint):
        for inner, kind in get_type_hints(hint).items():
            _check(kind, column.field(inner), f"{name}.{inner}")


def _record(row: dict[str, Any]) -> Record:
    plays = [Play(**{**play, "checks": [Check(**check) for check in play["checks"]]}) for play in row["plays"]]
    return Record(**{**row, "plays": plays, "attempts": [Attempt(**attempt) for attempt in row["attempts"]]})


def card(records: Sequence[Record], kind: str) -> str:
    """README.md of a data set's folder: the hub's header, where the questions come from, counts, fields."""
    licenses = sorted({record.license for record in records})
    one = licenses[0] if len(licenses) == 1 else "other"
    header = [
        f"license: {json.dumps(one)}",
        *(f"license_name: {json.dumps(', '.join(licenses))}" for _ in licenses[1:2]),
        "task_categories:\n- question-answering",
        "tags:\n- search-self-play\n- synthetic",
        "configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: " + DATA,
    ]
    verdicts = Counter(record.verdict for record in records)
    rules = Counter(record.rule for record in records if record.rule)
    rates = [record.solve_rate for record in records if record.solve_rate is not None]
    played = f"{sum(rates) / len(rates):.3f}" if rates else "unknown"
    lines = [
        "---\n" + "\n".join(header) + "\n---\n",
        "# Questions of search self-play\n",
        f"{WRITTEN if all(record.proposer_version is not None for record in records) else PLAYED}\n",
        "| | |\n|---|---|",
        f"| questions | {len(records):,} |",
        *(f"| {verdict} | {number:,} |" for verdict, number in sorted(verdicts.items())),
        *(f"| broke {rule} | {number:,} |" for rule, number in sorted(rules.items())),
        f"| groups of near-duplicates | {len({record.group for record in records}):,} |",
        f"| mean solve rate | {played} |",
        *(
            f"| {name} | {', '.join(sorted({getattr(record, field) for record in records}))} |"
            for name, field in (("run", "run"), ("corpus", "corpus"), ("source", "data_source"), ("licence", "license"))
        ),
    ]
    if kind == "bank":
        lines += ["\n| field | what it says |\n|---|---|", *(f"| `{name}` | {said} |" for name, said in FIELDS.items())]
    else:
        lines.append("\nRows have the columns of Search-R1's training files.")
    return "\n".join(lines) + "\n"
