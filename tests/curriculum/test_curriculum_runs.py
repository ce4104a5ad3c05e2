"""Curriculum figures of real games with scripted policies: live and from the files the same, also over restarts; a proposer
that collapses raises the alarm."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from recorded import again

from ssp.base.errors import InputError
from ssp.config.load import to_yaml
from ssp.record.runfolder import RunFolder
from ssp.selfplay.curriculum import figures as records
from ssp.selfplay.curriculum.figures import Watch
from ssp.telemetry.figures import find
from tests.board.boarded import ASYNC, played
from tests.selfplay import fakes

GIVEN = {"game__questions": "dataset", "data__questions": "world:train", "game__batch": "dummy"}


@pytest.fixture(autouse=True)
def short_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "WINDOW", 2)
    fakes.scripted(monkeypatch)


def logged(stage: fakes.Stage) -> dict[int, dict[str, float]]:
    """Step → the curriculum's figures as the run wrote them, the last row of a step."""
    rows = [(step, values) for step, role, values in stage.sink.rows if role == "game"]
    return {step: {name: v for name, v in row.items() if name.startswith("curriculum/")} for step, row in rows}


@pytest.mark.parametrize("changes", [{}, ASYNC, GIVEN], ids=["sync", "async", "given"])
def test_the_files_give_the_figures_that_were_logged(tmp_path: Path, changes: dict[str, Any]) -> None:
    stage = played(tmp_path / "run", steps=5, **changes)
    wanted = logged(stage)
    assert sorted(wanted) == [1, 2, 3, 4, 5]
    assert {step: values for step, values, _ in again(stage.folder)} == wanted
    names = {find(name, "game")[0].name for values in wanted.values() for name in values}
    assert {"curriculum/solved_<band>", "curriculum/learnability", "curriculum/solver_searches"} <= names
    assert ("curriculum/searches" in names) is ("game__questions" not in changes)


def test_a_resumed_run_remembers_its_rounds(tmp_path: Path) -> None:
    """Played to step 3, then by another process to step 6: as if it had been one."""
    whole = played(tmp_path / "whole", steps=6, save__every=1)
    stage = played(tmp_path / "parts", steps=3, save__every=1)
    first = logged(stage)
    stage.cfg.steps = 6
    later = fakes.Stage(stage.cfg, stage.folder.path)
    later.play()
    assert {**first, **logged(later)} == logged(whole)
    assert min(logged(later)) == 4


def test_a_round_that_was_played_again_counts_once(tmp_path: Path) -> None:
    """A learner dies, and again while it comes back: the run goes back to step 2, and the rounds after it are played by another incarnation."""
    stage = fakes.Stage(fakes.config(steps=5, save__every=2), tmp_path / "run")
    stage.folder.config.write_text(to_yaml(stage.cfg))
    fakes.FakeLearner.fail_at = {"solver/update": {4, 5}}
    stage.play()
    steps = [step for step, role, _ in stage.sink.rows if role == "game"]
    assert stage.sink.restarts[-1] == 2 and len(steps) > len(set(steps)) == 5
    assert {step: values for step, values, _ in again(stage.folder)} == logged(stage)


def test_rounds_that_the_run_went_back_before_are_gone(tmp_path: Path) -> None:
    """Killed at step 6 with a checkpoint of step 2, then played to step 3 by another process: 4 to 6 are of no lineage."""
    stage = played(tmp_path / "run", steps=2, save__every=2, eval__every=0)
    shutil.copytree(stage.folder.checkpoints, tmp_path / "checkpoints")
    stage.cfg.steps = 6
    fakes.Stage(stage.cfg, stage.folder.path).play()
    shutil.rmtree(stage.folder.checkpoints)
    shutil.copytree(tmp_path / "checkpoints", stage.folder.checkpoints)
    stage.cfg.steps = 3
    later = fakes.Stage(stage.cfg, stage.folder.path)
    later.play()
    assert {step: values for step, values, _ in again(stage.folder)} == {**logged(stage), **logged(later)}
    assert [step for step, _ in records.read(stage.folder)] == [1, 2, 3]


def test_what_cannot_be_read_any_more_is_told_and_begins_anew(tmp_path: Path) -> None:
    stage = played(tmp_path / "run", steps=2)
    for file in stage.folder.episodes.glob("proposer-*"):
        file.unlink()
    said: list[str] = []
    watch = Watch(stage.cfg, stage.folder, said.append)
    watch.restart(2)
    assert not said, "what is compared stands in the ledger"
    with pytest.raises(InputError):
        list(again(stage.folder))
    stage.folder.ledger.write_text("torn")
    watch.restart(2)
    (text,) = said
    assert "curriculum figures begin anew after step 2" in text
    assert watch.round(3, []) == {"curriculum/alarm_near_duplicates": 0.0}
    with pytest.raises(InputError, match="a run's folder holds"):
        list(again(RunFolder(tmp_path / "nowhere")))


def test_a_proposer_that_collapses_is_said_once_and_logged(tmp_path: Path) -> None:
    """From step 10 on it asks one question, whatever its target is."""
    said: list[str] = []
    watch = Watch(fakes.config(), RunFolder(tmp_path), said.append)
    lasting = []
    for step in range(1, 15):
        games = [
            fakes.game(f"g{100 * step + at}", **({"question": "one seat ?"} if step > 9 else {})) for at in range(16)
        ]
        lasting.append(watch.round(step, games)["curriculum/alarm_near_duplicates"])
    (text,) = said
    step = int(text.split("near_duplicates at step ")[1].split(":")[0])
    assert 10 <= step <= 12 and lasting == [0.0] * (step - 1) + [1.0] * (15 - step)
