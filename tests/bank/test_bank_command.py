"""`ssp bank`: tables, filters, one question, exports, and what is refused."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from launch import bank, data, doctor, inspect
from launch.main import COMMANDS, run
from ssp.base.errors import InputError
from ssp.base.models import called
from ssp.data.readers import read_questions
from ssp.selfplay.questions import files, reader
from tests.board.boarded import played
from tests.selfplay import fakes


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> fakes.Stage:
    return played(tmp_path_factory.mktemp("bank") / "run")


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def asked(*argv: object) -> tuple[int, str]:
        capsys.readouterr()
        code = run(bank.main, [str(word) for word in argv])
        out, err = capsys.readouterr()
        return code, out + err

    return asked


Ask = Callable[..., tuple[int, str]]


def test_the_summary_counts_what_the_ledger_has(stage: fakes.Stage, ask: Ask) -> None:
    assert "bank" in COMMANDS
    code, said = ask(stage.folder.path)
    records = reader.read(stage.folder).records
    valid = sum(record.verdict == "valid" for record in records)
    assert code == 0 and f"{len(records)} of {len(records)}" in said
    assert f"{len(records) - valid} rejected, {valid} valid" in said and "leakage" in said
    assert records[0].id[:9] in said and f"{len(records) - 20} more" in said
    assert "rejected by leakage, asked by version" in said and "answered right" in said
    assert said.splitlines()[-1].endswith(f"--show {records[0].id[:9]}")
    code, said = ask(stage.folder.path, "--limit", 3)
    assert code == 0 and f"{len(records) - 3} more" in said and records[3].id[:9] not in said


def test_one_question_with_all_that_came_of_it(stage: fakes.Stage, ask: Ask) -> None:
    record = next(r for r in reader.read(stage.folder).records if len(r.plays) > 1)
    for name in (record.id, record.id[:9], record.plays[1].game):
        code, said = ask(stage.folder.path, "--show", name)
        assert code == 0 and f"{record.question}  → {record.target}" in said
    for play in record.plays:
        assert f"{play.kind} in game {play.game}" in said and f"win rate {play.win_rate:.2f}" in said
    for attempt in record.attempts:
        assert f"attempt {attempt.episode}" in said and f"{attempt.file}:{attempt.row}" in said
    assert f"proposal {record.plays[0].proposal}" in said
    assert ", ".join(record.evidence) in said and "\n  <information>" in said, "a segment a line"


def test_episodes_are_listed(stage: fakes.Stage, ask: Ask) -> None:
    rows = stage.rows("SELECT * FROM episodes WHERE file != ''")
    code, said = ask(stage.folder.path, "--episodes", "--limit", 100000)
    assert code == 0 and {line.split()[0] for line in said.splitlines()} == {row["id"] for row in rows}
    roles = [line.split()[1] for line in said.splitlines()]
    assert set(roles[: roles.index("eval")]) == {"proposer", "solver"} and set(roles[roles.index("eval") :]) == {"eval"}
    code, said = ask(stage.folder.path, "--episodes", "--limit", 3)
    assert len(said.splitlines()) == 4 and f"{len(rows) - 3:,} more" in said
    id = said.split()[0]
    assert inspect.find(f"{stage.folder.path}:{id}").episode.id == id
    with pytest.raises(InputError, match="run --episodes` lists them"):
        inspect.find(f"{stage.folder.path}:nobody")
    with pytest.raises(InputError, match="ssp bank runs/a --episodes` lists the ids"):
        inspect.find("runs/a:")


def test_a_run_has_one_name_everywhere(
    stage: fakes.Stage, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Below runs/ its name, elsewhere its path; what commands print can be typed."""
    home = tmp_path / "a home"
    (home / "runs").mkdir(parents=True)
    (home / "runs" / "mine").symlink_to(stage.folder.path)
    monkeypatch.setenv("SSP_HOME", str(home))
    assert ask("mine", "--limit", "1")[0] == 0
    for argv in (["--ledger", "mine"], ["--ledger", "runs/mine"], ["--ledger", str(stage.folder.ledger)]):
        assert doctor.main(argv) == 0 and "conservation: holds" in capsys.readouterr().out
    assert called(home / "runs" / "mine") == "mine"
    assert called(stage.folder.path) == str(stage.folder.path)
    (other := tmp_path / "an other").mkdir()
    assert shlex.split(called(other)) == [str(other)], "no folder of that name is found from here"
    for argv in (["nobody"], ["nobody", "--show", "x"]):
        code, said = ask(*argv)
        assert code == 2 and "existing folder" in said


@pytest.mark.parametrize("transcripts", [False, True])
def test_an_export_is_read_like_the_run(stage: fakes.Stage, ask: Ask, tmp_path: Path, transcripts: bool) -> None:
    file = tmp_path / "bank.parquet"
    flags = ["--transcripts"] if transcripts else []
    code, said = ask(stage.folder.path, "--export", file, "--valid", *flags)
    records = files.read_bank(file)
    assert code == 0 and f"{len(records)} questions" in said
    assert {bool(attempt.transcript) for record in records for attempt in record.attempts} == {transcripts}
    listed = ask(stage.folder.path, "--valid")[1].splitlines()
    assert ask(file)[1].splitlines()[1:] == listed[1:]
    assert "asked nothing" in listed[0] and "asked nothing" not in ask(file)[1], "which an export does not say"
    shown = ask(file, "--show", records[0].id)[1]
    assert records[0].question in shown and ("<search>" in shown) == transcripts
    assert ask(file, "--export", tmp_path / "again.parquet")[0] == 0
    assert files.read_bank(tmp_path / "again.parquet") == records


def test_an_export_becomes_search_r1s_training_rows(stage: fakes.Stage, ask: Ask, tmp_path: Path) -> None:
    valid = [record for record in reader.read(stage.folder).records if record.verdict == "valid"]
    bank_, rows = tmp_path / "bank.parquet", tmp_path / "rows.parquet"
    assert ask(stage.folder.path, "--valid", "--source", "nq", "--export", bank_)[0] == 0
    assert data.main(["convert", str(bank_), "--to", "search-r1", "--out", str(rows)]) == 0
    read = read_questions(rows)
    assert [(q.question, list(q.answers)) for q in read] == [(r.question, r.answers) for r in valid]
    assert {(q.source, q.split) for q in read} == {("nq", "train")}


def test_a_licence_of_ones_own(stage: fakes.Stage, ask: Ask, tmp_path: Path) -> None:
    assert ask(stage.folder.path, "--export", tmp_path / "bank.parquet", "--license", "cc-by-4.0")[0] == 0
    assert {record.license for record in files.read_bank(tmp_path / "bank.parquet")} == {"cc-by-4.0"}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--show", "q0"], "named by its id"),
        (["--show", "nobody"], "nobody, none"),
        (["--min-difficulty", "2"], "a number from 0 to 1"),
        (["--export", "{there}"], "a new file"),
        (["--export", "{new}.csv"], ".parquet file"),
        (["--export", "{new}"], ".parquet file"),
        (["--export", "{new}.parquet", "--contains", "no such text"], "at least one question"),
        (["--episodes", "--export", "{new}"], "not allowed with"),
        (["--export", "{there}/bank.parquet"], "can be written"),
    ],
)
def test_what_is_refused(stage: fakes.Stage, ask: Ask, tmp_path: Path, flags: list[str], said: str) -> None:
    (tmp_path / "there.parquet").write_text("mine")
    names = {"there": tmp_path / "there.parquet", "new": tmp_path / "new"}
    code, text = ask(stage.folder.path, *[flag.format(**names) for flag in flags])
    assert code == 2 and said in text and "Next:" in text
    assert [path.name for path in tmp_path.iterdir()] == ["there.parquet"]
    assert (tmp_path / "there.parquet").read_text() == "mine"
