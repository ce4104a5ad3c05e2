"""The bank as a parquet file, which reads back as the same records and appears whole or not at all.
Also the questions that a run is given, from a data set or a bank."""

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
from ssp.data.told import told
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
            rows = [asdict(record) for record in records[at : at + ROWS]]
            writer.write_table(pa.Table.from_pylist(rows, SCHEMA))


def is_bank(place: Path) -> bool:
    """Whether `place` is an exported file, not a run."""
    return place.suffix == ".parquet"


def read_bank(place: Path) -> list[Record]:
    """The records of an exported file. InputError for a file that is missing, or lacks a field."""
    return list(_records(place))


def _records(path: Path) -> Iterator[Record]:
    hold(path.is_file(), "a bank's file must exist", path, "check the path")
    needed = set(SCHEMA.names) - {"rule", "proposer_version", "solve_rate", "difficulty"}
    rule, step = "a bank's file has all its fields", "export one: ssp bank RUN --export FILE"

    errors = (OSError, pa.ArrowException)
    with holding(errors, rule, lambda error: f"{path} ({' '.join(str(error).split())})", step):
        missing = set(SCHEMA.names) - set(pq.read_schema(path).names)
        if missing:
            raise pa.ArrowInvalid(f"no column {min(missing)}")
        for batch in dataset(path, schema=SCHEMA, format="parquet").to_batches(batch_size=ROWS):
            nulls = [name for name in needed if batch[name].null_count]
            if nulls:
                raise pa.ArrowInvalid(f"a null in {nulls[0]}")
            for row in batch.to_pylist():
                row["plays"] = [PlayedGame(**play) for play in row["plays"]]
                row["attempts"] = [Attempt(**attempt) for attempt in row["attempts"]]
                yield Record(**row)


def _exported(place: Path) -> list[Question]:
    """The questions to play in an exported file: the valid ones in a bank, else all."""
    with suppress(OSError, pa.ArrowException):  # a bank's reader says what is wrong with it
        if "plays" not in pq.read_schema(place).names:
            return read_questions(place)
    valid = (record for record in _records(place) if record.verdict == VALID)
    return [
        Question(one.id, one.question, tuple(one.answers), 0, one.data_source, one.split)
        for one in valid
    ]


def _accepted(cfg: Config, place: Path) -> list[Question]:
    """The questions that the referee accepted in the run, or the ledger, at `place`."""
    if place.is_dir():
        run = RunFolder(place)
        run.check_idle()  # its questions would become more while these are played
        place = run.ledger
    with closing(Ledger(place, readonly=True)) as ledger:
        pairs = list(ledger.accepted())
    known = answered(cfg)
    return [known.get(pair) or Question(identify(*pair), pair[0], pair[1:]) for pair in pairs]


def given(cfg: Config) -> list[Question]:
    """The questions that `cfg` is given, in order: none where a proposer asks them all.

    They are those of a data set, or those that the referee accepted in a bank: the folder, the
    ledger or an exported file of an earlier run. InputError for a bad file."""
    if cfg.game.questions == "proposer" and cfg.game.given == 0:
        return []
    if cfg.game.questions != "bank":
        file = files.resolve(cfg.data.questions, "questions")
        place = resolve(file, "data.questions")
        questions = read_questions(place)
        return told(place, questions) if cfg.answering.agent else questions
    place = resolve(cfg.data.questions, "data.questions")
    questions = _exported(place) if is_bank(place) else _accepted(cfg, place)
    rule = "a bank holds at least one accepted question"
    hold(questions, rule, place, "name a run that a proposer played in")
    return questions


def before_this(cfg: Config) -> RunFolder | None:
    """The run whose accepted questions `cfg` is given, if it is a run."""
    if cfg.game.questions != "bank":
        return None
    place = resolve(cfg.data.questions, "data.questions")
    if is_bank(place):
        return None
    return RunFolder(place.parent if place.suffix == ".db" else place)


def answered(cfg: Config) -> dict[tuple[str, str], Question]:
    """(question, first answer) → the question, as the file says that `cfg` is given, or that the
    run behind its bank was given; empty without a file."""
    before = before_this(cfg)
    if before is None:
        return {(asked.question, asked.answers[0]): asked for asked in given(cfg)}
    with suppress(InputError):  # what it was given may be gone: then a target is its one answer
        if before.config.is_file():
            return answered(RunReader(before).cfg)
    return {}
