"""Blocks that are gone when a learner wants them: the run goes back to its last checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fakes
import pytest
from fakes import Stage, config

from ssp.base.episode import PROPOSER, ROLES, SOLVER
from ssp.selfplay.queues import Channel

LOST = "SELECT * FROM episodes WHERE cause = 'payload_lost' ORDER BY id"


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.scripted(monkeypatch)


@pytest.mark.parametrize("policy", ["own", "shared"])
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("bound", [0, 2])
def test_a_learner_that_lacks_a_block_takes_the_run_back_and_nothing_is_learned_twice(
    tmp_path: Path, policy: str, role: str, bound: int
) -> None:
    """A node took blocks along that were graded, and not trained yet: their rounds are played again."""
    bounds = {f"schedule__max_staleness__{name}": bound for name in ROLES}
    shared = {f"{name}__policy": policy for name in ROLES}
    stage = Stage(config(steps=6, save__every=2, **bounds, **shared), tmp_path / "run", jitter=1)
    learner = role if policy == "own" else SOLVER
    stage.cast.learners[learner].fails = fakes.on_calls("update", 4, cause="payload_lost")  # type: ignore[attr-defined]
    stage.play()
    states = stage.settled()
    assert len([text for text in stage.sink.events if "payload_lost; back to the last" in text]) == 1
    assert stage.state()["step"] == 6 and set(stage.sink.steps(role)) == set(range(1, 7))
    lost = stage.rows("SELECT * FROM episodes WHERE cause = 'rolled_back'")
    assert {row["state"] for row in lost} == {"dropped"} and not stage.rows(LOST)
    assert all(states[name]["trained"] for name in ROLES) and stage.figures(role)[-1]["staleness/max"] <= bound


def test_a_run_sweeps_each_queue_after_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the version that was published then; where nothing is that old, no queue is asked."""
    asked: list[tuple[str, int]] = []
    sweep = Channel.sweep

    async def noted(self: Channel, oldest: int, account: Any) -> None:
        asked.append((self.name, oldest))
        await sweep(self, oldest, account)

    monkeypatch.setattr(Channel, "sweep", noted)
    stage = Stage(config(steps=3, schedule__max_staleness__solver=1), tmp_path / "run")
    stage.play()
    for role, oldest in ((PROPOSER, [2, 3, 4]), (SOLVER, [1, 2, 3])):
        name = stage.cast.queues[role].name
        assert [version for queue, version in asked if queue == name] == oldest
        assert stage.cast.queues[role].counts["sweep"] == 0  # type: ignore[attr-defined]
