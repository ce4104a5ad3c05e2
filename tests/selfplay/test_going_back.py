"""Checkpoints that are believed only as far as their own records and the ledger go, and the way back to a kept one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakes
import pytest
from fakes import FakeLearner, Stage, config

from launch import doctor
from ssp.base.errors import InputError
from ssp.config.load import to_yaml
from ssp.record import manifest
from ssp.record.runfolder import RunFolder, locate
from ssp.selfplay.checkpoint import check_resumable, go_back, read
from ssp.selfplay.workers import build

KEEP = {"save__keep": 3, "steps": 4}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps that keeps the last three."""
    path = tmp_path_factory.mktemp("runs") / "q-001"
    with pytest.MonkeyPatch.context() as patch:
        fakes.scripted(patch)
        Stage(config(**KEEP), path).play()
    return path


@pytest.fixture
def run(played: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setattr(build, "check_protocol", lambda *args: None)
    return RunFolder(shutil.copytree(played, tmp_path / "q-001"))


def refused(run: RunFolder, resume: str = "auto") -> str:
    stage = Stage(config(**KEEP, resume=resume), run.path)
    with pytest.raises(InputError) as found:
        check_resumable(run, stage.cfg, stage.targets())
    return str(found.value)


def edit(path: Path, change: Callable[[dict[str, Any]], object], seal: bool = False) -> None:
    """Change a JSON file. `seal`: with a digest that fits, as one who is not careless would."""
    body = json.loads(path.read_text())
    change(body)
    if seal:
        body["sha256"] = manifest.own_digest(body)
    path.write_text(json.dumps(body))


def damage(run: RunFolder, step: int) -> Path:
    """Flip a byte that the digests of the solver's checkpoint at `step` know."""
    state = run.read_state(step)
    assert state is not None
    file = run.path / state["folders"]["solver"] / "model.safetensors"
    file.write_bytes(b"weights")
    edit(file.parent / "ssp.json", lambda body: body.update(sha256={file.name: manifest.digest(file)}))
    file.write_bytes(b"weightz")
    return file


def test_each_kept_step_has_its_state(run: RunFolder) -> None:
    assert run.steps() == [2, 3, 4]
    assert run.state.read_text() == (run.checkpoints / "state-4.json").read_text()
    stage = Stage(config(**KEEP), run.path)
    check_resumable(run, stage.cfg, stage.targets())


@pytest.mark.parametrize(
    ("step", "seal"),
    [(56, False), (-5, False), (True, False), (1e3, False), (None, False), (3, True), (-5, True), (True, True)],
)
def test_the_step_of_state_json_is_compared_before_it_is_believed(
    run: RunFolder, step: Any, seal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(run.state, lambda state: state.update(step=step), seal)
    assert "resume=step:4" in refused(run)
    assert doctor.main(["--ledger", str(run.ledger)]) == 1
    assert "checkpoint: BROKEN" in capsys.readouterr().out


@pytest.mark.parametrize(
    "folder", ["../elsewhere", "/etc", "checkpoints/../../q-002/checkpoints/solver/v5", "checkpoints/../.."]
)
def test_a_state_names_folders_of_its_own_run(run: RunFolder, folder: str) -> None:
    edit(run.state, lambda state: state["folders"].update(solver=folder), seal=True)
    assert "folders of its own run" in refused(run)


def before_credit(run: RunFolder, algorithms: dict[str, Any]) -> dict[str, Any]:
    """Let the run's checkpoints be as they were while estimators were the learners'; what state.json said of credit."""
    state = run.read_state()
    assert state is not None
    states = [one for one in (state, state["good"]) if one]
    edit(run.state, lambda body: [one.pop("credit", None) for one in (body, body["good"])], seal=True)
    for role, remembered in algorithms.items():
        told = {role: {"name": "x", "state": remembered}}
        for folder in {one["folders"][role] for one in states}:
            edit(run.path / folder / "ssp.json", lambda body, told=told: body.update(algorithm=told))
    return dict(state["credit"])


@pytest.mark.parametrize("algorithm", ["rae", "reinforce_running"])
def test_a_running_baseline_of_an_older_checkpoint_goes_on_or_the_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    monkeypatch.setattr(build, "check_protocol", lambda *args: None)
    cfg = config(**KEEP, solver__algorithm=algorithm, health__on_collapse="rollback")
    stage = Stage(cfg, tmp_path / "q-001").played()
    run = stage.folder
    credit = before_credit(run, {})
    assert credit["solver"] and any(credit["solver"].values())
    with pytest.raises(
        InputError, match=f"{algorithm} of solver remembers.*state.json: no credit of solver at step.*Next: "
    ):
        check_resumable(run, cfg, stage.targets())
    edit(run.state, lambda state: state.update(credit={"solver": {"other": 1.0}}), seal=True)
    with pytest.raises(InputError, match=f"{algorithm} of solver remembers"):
        check_resumable(run, cfg, stage.targets())
    before_credit(run, {role: credit.get(role, {}) for role in ("proposer", "solver")})
    check_resumable(run, cfg, stage.targets())
    state = read(run)
    assert state is not None and state.credit == credit and state.good.get("credit", credit) == credit


def test_a_damaged_newest_checkpoint_names_those_that_are_whole(run: RunFolder) -> None:
    file = damage(run, 4)
    message = refused(run)
    assert str(file) in message and "(2, 3)" in message and f"resume=step:3 run.dir={run.path}" in message
    damage(run, 3)
    assert "resume=step:2" in refused(run) and "resume=step:2" in refused(run, "step:3")
    run.state.unlink()  # then nothing says which is the newest
    assert run.has_state and "resume=step:2" in refused(run)
    damage(run, 2)
    assert "resume=" not in refused(run)


def test_a_run_goes_back_to_a_kept_step_and_its_ledger_with_it(run: RunFolder) -> None:
    damage(run, 4)
    go_back(run, 3)
    assert Stage(config(), run.path).state()["step"] == 3
    stage = Stage(config(**KEEP | {"steps": 6}, resume="step:3"), run.path).played()
    counts = stage.settled()
    assert stage.ledger.outcomes()["drop/rolled_back"] > 0
    live = stage.rows("SELECT role, count(DISTINCT step) AS updates FROM commits WHERE NOT rolled_back GROUP BY role")
    assert {row["role"]: row["updates"] for row in live} == {"proposer": 6, "solver": 6}
    in_weights = {id_ for role, update, ids in FakeLearner.seen if role == "solver" and update > 3 for id_ in ids}
    since = stage.rows("SELECT id FROM episodes WHERE state = 'trained' AND role = 'solver' AND commit_step > 3")
    assert {row["id"] for row in since} == in_weights and counts["solver"]["trained"] > len(in_weights)
    assert stage.sink.steps("solver") == [4, 5, 6] and run.steps() == [4, 5, 6]
    check_resumable(run, config(**KEEP, resume="auto"), stage.targets())


@pytest.mark.parametrize("damage", ["gone", "cut", "exchanged", "holed"])
def test_transcripts_that_are_gone_or_cut_are_noticed(
    run: RunFolder, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor.main(["--ledger", str(run.ledger)]) == 0
    said = capsys.readouterr().out
    assert "transcripts: holds" in said and said.splitlines()[-1] == "conservation: holds"
    one, other = sorted(run.episodes.glob("solver-*.parquet"))[:2]
    content = one.read_bytes()
    if damage == "gone":
        one.unlink()
    elif damage == "exchanged":
        shutil.copyfile(other, one)
    else:
        one.write_bytes(content[: len(content) // 2] + (b"" if damage == "cut" else bytes(len(content) // 8)))
    assert doctor.main(["--ledger", str(run.ledger)]) == 1
    assert f"transcripts: BROKEN: {one}" in capsys.readouterr().out
    stage = Stage(config(**KEEP), run.path)
    if damage != "exchanged":  # a resumed run reads the end of each
        assert str(one) in check_resumable(run, stage.cfg, stage.targets())[0]


def test_resume_names_a_step_as_auto_names_a_run(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSP_HOME", str(tmp_path))
    os.makedirs(tmp_path / "runs")
    run = RunFolder(run.path.rename(tmp_path / "runs" / "q-001"))
    shutil.copytree(run.path, tmp_path / "mine")
    for path, changes in (
        (run.path, {}),
        (run.path, {"run__name": "q-001"}),
        (tmp_path / "mine", {"run__dir": "mine"}),
    ):
        cfg = config(**KEEP, resume="step:3", **changes)
        RunFolder(path).config.write_text(to_yaml(cfg))
        place = locate(cfg, "q")
        assert (place.path, place.resumed) == (path, True)
    for resume, found in (("step:1", "keeps 2, 3, 4"), ("step:", "step:<number>"), ("step:-2", "step:<number>")):
        with pytest.raises(InputError, match=found):
            locate(config(**KEEP, resume=resume), "q")
    with pytest.raises(InputError, match="keeps none"):
        locate(config(**KEEP, resume="step:3", run__name="other"), "q")
