"""The bank as a parquet file, which reads back as the same records and appears whole or not at all;
and questions that nobody proposes: those of a data set or a bank."""

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.dataset import dataset

from ssp.base.errors import InputError, hold, holding
from ssp.base.files import whole
from ssp.base.models import resolve
from ssp.config.schema import Config
from ssp.data.readers import Question, read_questions
from ssp.game.world import files
from ssp.record.ledger import Ledger
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.selfplay.questions.records import VALID, Attempt, PlayedGame, Record, identify

ROWS = 200
"""Records that are written and read at a time: parquet cannot give back 2 GiB of nested text in one
piece."""

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


def write_bank(path: Path, records: Sequence[Record]) -> None:
    """All fields of the records, in order. InputError for one without a source or a licence."""
    for record in records:
        if not record.data_source.strip() or not record.license.strip():
            raise InputError(
                "every question of a bank has a source and a licence", record.id, "say --license"
            )
    with whole(path) as aside, pq.ParquetWriter(aside, SCHEMA, compression="zstd") as writer:
        for at in range(0, len(records), ROWS):
            writer.write_table(
                pa.Table.from_pylist([asdict(record) for record in records[at : at + ROWS]], SCHEMA)
            )


def is_bank(place: Path) -> bool:
    """Whether `place` is an exported file, not a run."""
    return place.suffix == ".parquet"


def read_bank(place: Path) -> list[Record]:
    """The records of an exported file. InputError for one that is missing, or no bank with all
    fields."""
    return list(_records(place))


def _records(path: Path) -> Iterator[Record]:
    hold(path.is_file(), "a bank's file must exist", path, "check the path")
    needed = set(SCHEMA.names) - {"rule", "proposer_version", "solve_rate", "difficulty"}
    rule, step = "a bank's file has all its fields", "export one: ssp bank RUN --export FILE"
    with holding(
        (OSError, pa.ArrowException),
        rule,
        lambda error: f"{path} ({' '.join(str(error).split())})",
        step,
    ):
        if missing := set(SCHEMA.names) - set(pq.read_schema(path).names):
            raise pa.ArrowInvalid(f"no column {min(missing)}")
        for batch in dataset(path, schema=SCHEMA, format="parquet").to_batches(batch_size=ROWS):
            if nulls := [name for name in needed if batch[name].null_count]:
                raise pa.ArrowInvalid(f"a null in {nulls[0]}")
            for row in batch.to_pylist():
                plays = [PlayedGame(**play) for play in row["plays"]]
                yield Record(
                    **{
                        **row,
                        "plays": plays,
                        "attempts": [Attempt(**one) for one in row["attempts"]],
                    }
                )


def _accepted(place: Path) -> list[Question]:
    """The questions to play of an exported file: a bank's valid ones, all of any other question
    file."""
    with suppress(OSError, pa.ArrowException):  # a bank's reader says what is wrong with it
        if "plays" not in pq.read_schema(place).names:
            return read_questions(place)
    kept = (record for record in _records(place) if record.verdict == VALID)
    return [
        Question(one.id, one.question, tuple(one.answers), 0, one.data_source, one.split)
        for one in kept
    ]


def given(cfg: Config) -> list[Question]:
    """The questions that `cfg` is given, in order: those of a data set, or what the referee
    accepted in a bank (an earlier run's folder or ledger, or what was exported of one); none where
    a proposer asks. InputError for a bad file."""
    if cfg.game.questions == "proposer":
        return []
    if cfg.game.questions == "dataset":
        return read_questions(
            resolve(files.resolve(cfg.data.questions, "questions"), "data.questions")
        )
    place = resolve(cfg.data.questions, "data.questions")
    if is_bank(place):
        found = _accepted(place)
    else:
        if place.is_dir():
            RunFolder(place).check_idle()  # its questions would become more while these are played
        with closing(
            Ledger(RunFolder(place).ledger if place.is_dir() else place, readonly=True)
        ) as ledger:
            pairs = list(ledger.accepted())
        known = answered(cfg)
        found = [
            known.get(pair) or Question(identify(*pair), pair[0], (pair[1],)) for pair in pairs
        ]
    hold(
        found,
        "a bank holds at least one accepted question",
        place,
        "name a run that a proposer played in",
    )
    return found


def before_this(cfg: Config) -> RunFolder | None:
    """The run whose accepted questions `cfg` is given, if it is a run."""
    place = resolve(cfg.data.questions, "data.questions") if cfg.game.questions == "bank" else None
    return (
        None
        if place is None or is_bank(place)
        else RunFolder(place.parent if place.suffix == ".db" else place)
    )


def answered(cfg: Config) -> dict[tuple[str, str], Question]:
    """(question, first answer) → what the file behind `cfg`, or behind the run whose bank it is
    given, says of it; empty where none is."""
    if (before := before_this(cfg)) is not None:
        with suppress(InputError):  # what it was given may be gone: then a target is its one answer
            return answered(RunReader(before).cfg) if before.config.is_file() else {}
        return {}
    return {(asked.question, asked.answers[0]): asked for asked in given(cfg)}
