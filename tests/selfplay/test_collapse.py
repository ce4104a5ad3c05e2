"""Row 5.6 of the seeds, issue 3: a run that collapses (reward up, then answer-only) is found and goes back.

Scripted players, whose policy is the fake learner's only weight: the number of updates in its lineage, and whether one of
these spoiled it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
from fakes import FakeLearner, Stage, config, tokens

from ssp.base.episode import ROLES, SOLVER
from ssp.config.schema import Config
from ssp.engines import ScriptedEngine
from ssp.selfplay.health import Collapse
from ssp.selfplay.workers import build
from tests import local

SPOILED = 8
"""The update that spoils the solver: batch 9 is the first that a spoiled policy played (at bound 0)."""


class Collapsing(ScriptedEngine):
    """A spoiled solver answers at once, without a search."""

    spoiled = False

    def __init__(self) -> None:
        super().__init__(self._speak)

    def load(self, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        super().load(weights, version, keep)
        self.spoiled = bool(weights["w"][0] < 0)

    def _speak(self, ids: list[int], seed: int, turn: int) -> list[int]:
        text = tokens().decode(ids)
        if self.spoiled and "<q>" in text and not text.startswith("<information>"):
            return list(tokens().encode("<answer> nothing </answer> <eos>", add_special_tokens=False))
        return fakes.script(ids, seed, turn)


class Spoilt(FakeLearner):
    """Each of the solver's first `times` lineages is spoiled by its update `SPOILED`, and stays so."""

    times = 1
    done = 0
    restored: list[int] = []

    def exported(self) -> dict[str, np.ndarray]:
        return {"w": np.array([-1 if self.updates >= 1000 else self.updates], np.float32)}

    def update(self, samples: dict[str, Any], *blocks: Any) -> Any:
        if self.role == SOLVER and self.updates == SPOILED - 1 and Spoilt.done < Spoilt.times:
            Spoilt.done += 1
            self.updates += 1000
        return super().update(samples, *blocks)

    def load(self, folder: str) -> None:
        super().load(folder)
        if self.role == SOLVER:
            Spoilt.restored.append(self.updates)


@pytest.fixture(autouse=True)
def _collapsing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "engine", lambda *args: Collapsing())
    monkeypatch.setattr(local, "Learner", Spoilt)
    Spoilt.times, Spoilt.done, Spoilt.restored = 1, 0, []


def cfg(**changes: Any) -> Config:
    # reinforce: an answer-only batch has no spread, and an update of it is an update all the same
    chosen = {"eval__every": 0, "solver__algorithm": "reinforce", "health__on_collapse": "rollback", **changes}
    return config(**{"steps": 16, "health__collapse": 0.3, "proposer__batch": 4, "solver__batch": 3, **chosen})


def alarms(stage: Stage) -> list[str]:
    return [text for text in stage.sink.events if "collapse" in text]


@pytest.mark.covers("X-03")
@pytest.mark.parametrize(("bounds", "every"), [((0, 0), 1), ((1, 1), 3), ((0, 0), 4), ((2, 1), 4)])
def test_a_collapse_goes_back_to_the_last_good_checkpoint(tmp_path: Path, bounds: tuple[int, int], every: int) -> None:
    """With `every` 4 the newest pair at the first sign is of the spoiled update itself, and not the one to go to."""
    stage = Stage(cfg(save__every=every, bounds=bounds), tmp_path / "run", jitter=1).played()
    (said,) = alarms(stage)
    first_played = SPOILED + 1 + bounds[1]  # a batch may be `bound` versions old
    assert any(f"of the solver at step {step}:" in said for step in range(first_played, first_played + 5)), said
    # With a bound the first spoiled batch comes up to so many steps sooner, by who was faster.
    possible = list(range(0, SPOILED, every))[-1 - bounds[1] :]
    (good,) = [step for step in possible if f"Back to the checkpoint of step {step}," in said]
    assert Spoilt.restored == [good]  # the updates in the lineage of what was loaded: none of them spoiled it
    stage.settled()
    state = stage.state()
    assert (state["step"], state["rollbacks"]) == (16, 1)
    assert stage.ledger.outcomes()["drop/rolled_back"] > 0
    live = stage.rows("SELECT role, step FROM commits WHERE NOT rolled_back")
    assert sorted((c["role"], c["step"]) for c in live) == [(role, s) for role in ROLES for s in range(1, 17)]
    saved = json.loads((stage.folder.path / state["folders"][SOLVER] / "ssp.json").read_text())
    assert saved["step"] == 16


def seeds(stage: Stage) -> dict[int, set[int]]:
    """Seeds of the solver's episodes, by incarnation."""
    found: dict[int, set[int]] = {}
    for _, method, args in stage.cast.players["solver"].calls:
        if method == "play" and args[1].stem.startswith(SOLVER):
            for task in args[0]:
                found.setdefault(int(task.id.rsplit("-i", 1)[1].split(".")[0]), set()).add(task.seed)
    return found


def test_what_is_played_again_is_drawn_anew_also_after_a_restart(tmp_path: Path) -> None:
    """The same draws would lead to the same collapse."""
    stage = Stage(cfg(), tmp_path / "run").played()
    before, after = seeds(stage).values()
    assert before and after and not before & after
    longer = Stage(cfg(steps=17), tmp_path / "run").played()
    (more,) = seeds(longer).values()
    whole = Stage(cfg(steps=17), tmp_path / "plain").played()
    (plain,) = seeds(whole).values()
    assert more and not more & plain


@pytest.mark.parametrize(("rollbacks", "times"), [(0, 1), (2, 3)])
def test_a_run_that_collapses_again_and_again_stops(tmp_path: Path, rollbacks: int, times: int) -> None:
    Spoilt.times = times
    stage = Stage(cfg(health__rollbacks=rollbacks, save__every=2), tmp_path / "run")
    with pytest.raises(Collapse, match="the run folder is as it was at step 6") as stopped:
        stage.play()
    assert stopped.value.exit_code == 1 and len(alarms(stage)) == rollbacks == stage.state()["rollbacks"] - 1
    stage.settled()
    assert stage.state()["step"] == 6


@pytest.mark.covers("X-03")
def test_stop_leaves_the_good_checkpoint_and_the_run_can_go_on_from_it(tmp_path: Path) -> None:
    stage = Stage(cfg(health__on_collapse="stop", save__every=4), tmp_path / "run")
    with pytest.raises(Collapse, match=r"reward collapse of.*search collapse of the solver.*step 4\)"):
        stage.play()
    stage.settled()
    assert stage.state()["step"] == 4
    again = Stage(cfg(health__on_collapse="stop", save__every=4), tmp_path / "run").whole()
    assert again.state()["step"] == 16


def test_warn_says_so_and_plays_on(tmp_path: Path) -> None:
    stage = Stage(cfg(health__on_collapse="warn"), tmp_path / "run").played()
    assert len(alarms(stage)) == 2  # of the reward and of the searches
    assert stage.state()["step"] == 16 and stage.state()["good"] == {}
    assert [row["health/alarms"] for row in stage.figures(SOLVER)] == [0.0] * 12 + [2.0] * 4
