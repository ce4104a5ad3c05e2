"""What is exported comes back the same: as a bank, as questions to play."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ssp.base.errors import InputError
from ssp.config.load import to_yaml
from ssp.record.runfolder import RunFolder
from ssp.selfplay.questions import files, reader
from ssp.selfplay.questions.files import answered, given
from ssp.selfplay.questions.records import Record
from ssp.selfplay.scene import read_items
from tests.board.boarded import played
from tests.selfplay import fakes


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fakes.Stage:
    return played(tmp_path_factory.mktemp("bank") / "run", steps=8)


@pytest.fixture(scope="module")
def records(run: fakes.Stage) -> list[Record]:
    return reader.told(run.folder, reader.read(run.folder).records)


def bank(path: Path) -> fakes.Config:
    return fakes.config(game__questions="bank", data__questions=str(path))


def test_export_and_import_are_the_same_records(tmp_path: Path, records: list[Record]) -> None:
    first, second = tmp_path / "bank.parquet", tmp_path / "again.parquet"
    files.write_bank(first, records)
    back = files.read_bank(first)
    assert back == records and any(play.transcript for record in back for play in record.plays)
    files.write_bank(second, back)
    assert second.read_bytes() == first.read_bytes()


@pytest.mark.parametrize("change", [{"question": None}, {"license": None}, {"plays": None}])
def test_a_null_where_none_may_be_is_refused(tmp_path: Path, records: list[Record], change: dict[str, None]) -> None:
    pq.write_table(pa.Table.from_pylist([{**asdict(records[0]), **change}], files.SCHEMA), tmp_path / "bank.parquet")
    with pytest.raises(InputError, match=f"all its fields.*{next(iter(change))}"):
        files.read_bank(tmp_path / "bank.parquet")


def test_an_export_is_played_as_the_run_itself_would_be(
    tmp_path: Path, run: fakes.Stage, records: list[Record]
) -> None:
    """The same questions and answers in the same order: so the same curriculum, whatever the seed."""
    files.write_bank(tmp_path / "bank.parquet", records)
    wanted = read_items(bank(run.folder.path))
    assert read_items(bank(tmp_path / "bank.parquet")) == wanted and len(wanted) > 10


def whose(tmp_path: Path, questions: str, **changes: Any) -> reader._Reader:
    """What is said of the questions of a run over `questions`."""
    cfg = fakes.config(game__questions="bank", data__questions=questions, **changes)
    return reader._Reader(cfg, RunFolder(tmp_path / "later"), {})


def test_what_was_asked_over_another_corpus_keeps_its_licence(tmp_path: Path) -> None:
    """Run B plays in a generated world what run A asked over somebody's documents, and C what B played."""
    for name, changes in (("a", {"data__corpus": "/data/wiki.jsonl"}), ("b", {"game__questions": "bank"}), ("c", {})):
        (tmp_path / name).mkdir()
        cfg = fakes.config(**changes, data__questions=str(tmp_path / "a") if name == "b" else "")
        (tmp_path / name / "config.yaml").write_text(to_yaml(cfg))
    for place, run, said in (
        ("a", "a", "unknown"),
        ("a/ledger.db", "a", "unknown"),
        ("b", "b", "unknown"),
        ("gone", "gone", "unknown"),
        ("c", "c", "apache-2.0"),
    ):
        found = whose(tmp_path, str(tmp_path / place)).source("who ?", "x")
        assert found == (("x",), f"selfplay-{run}", "train", said), place


def test_all_right_answers_travel(tmp_path: Path, records: list[Record]) -> None:
    """Of a bank that was made of a data set."""
    one = replace(records[0], verdict="valid", answers=[records[0].target, "another"])
    files.write_bank(tmp_path / "bank.parquet", [one])
    (item,) = read_items(bank(tmp_path / "bank.parquet"))
    assert (item.target, item.golds) == (one.target, (one.target, "another"))
    assert list(answered(bank(tmp_path / "bank.parquet"))) == [(one.question, one.target)]
    assert answered(bank(tmp_path / "a-run")) == {} == answered(fakes.config())


@pytest.mark.parametrize("field", ["license", "data_source"])
def test_no_question_is_without_source_and_licence(tmp_path: Path, records: list[Record], field: str) -> None:
    for said in ("", " "):
        with pytest.raises(InputError, match="a source and a licence"):
            files.write_bank(tmp_path / "bank.parquet", [replace(records[0], **{field: said})])
    assert not list(tmp_path.iterdir())


def test_what_is_no_bank_is_refused(tmp_path: Path, records: list[Record]) -> None:
    with pytest.raises(InputError, match="must exist"):
        files.read_bank(tmp_path / "nowhere.parquet")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    pq.write_table(pa.table({"question": ["which ?"]}), tmp_path / "other.parquet")
    for name in ("torn", "other"):
        with pytest.raises(InputError, match="all its fields"):
            files.read_bank(tmp_path / f"{name}.parquet")
    for name, message in (("torn", "all its fields"), ("other", "golden_answers"), ("nowhere", "must exist")):
        with pytest.raises(InputError, match=message):
            given(bank(tmp_path / f"{name}.parquet"))
    files.write_bank(tmp_path / "rejected.parquet", [r for r in records if r.verdict == "rejected"])
    with pytest.raises(InputError, match="at least one accepted question"):
        given(bank(tmp_path / "rejected.parquet"))
