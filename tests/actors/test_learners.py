"""A learner of two ranks on a real cluster: one answer, a rank's death."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from trainruns import PATIENCE, POLICY

from actors import learners
from actors.crew import Patience
from ssp.base.episode import Episode, Outcome
from ssp.base.errors import Fault, InvariantError, SspError
from ssp.base.tokenlog import Kind
from ssp.config.schema import Config
from ssp.learning.scored import Scored
from ssp.selfplay.settings import load
from ssp.selfplay.workers.learner import Learner

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("joined")]
TWO = ("solver.learner.kind=deepspeed", "solver.learner.ranks=2")
SAMPLES = [Scored(float(row % 2), row // 4, id=f"e{row}", block="b", row=row) for row in range(8)]


def config(*overrides: str, restarts: int = 2) -> Config:
    cfg = load("quickstart", [f"defaults.model={POLICY}", *overrides])
    cfg.placement.restarts = restarts
    return cfg


def crew(cfg: Config, name: str) -> tuple[learners.LearnerCrew, list[str]]:
    said: list[str] = []
    made = learners.LearnerCrew(
        cfg, "solver", POLICY, name, lambda rank: {"num_cpus": 0.1}, Patience(PATIENCE, PATIENCE), said.append
    )
    return made, said


def block() -> list[Episode]:
    """Eight made-up episodes of the shipped policy's vocabulary."""
    rng, episodes = np.random.default_rng(0), []
    for row in range(8):
        episode = Episode(f"e{row}", f"g{row // 4}", "solver", row % 4, outcome=Outcome.SCORED)
        episode.log.append(Kind.PROMPT, rng.integers(0, 50, 6).tolist())
        own = rng.integers(0, 50, 4 + row).tolist()
        episode.log.append_model(own, [-3.0] * len(own), 0)
        episodes.append(episode)
    return episodes


@pytest.mark.covers("SR-10")
def test_two_ranks_answer_as_one_and_a_dead_one_ends_all_and_comes_back(tmp_path: Path) -> None:
    cfg = config(*TWO)
    made, said = crew(cfg, "learner-solver")
    one = Learner(config(), "solver", POLICY)
    made_by_one = one.learn(SAMPLES, ["b"], block())

    async def play() -> None:
        await made.ready()
        parcel, stats = await made[0].update({"solver": SAMPLES}, ["b"], block())
        assert stats["solver"]["grad_norm"] == pytest.approx(made_by_one["grad_norm"], rel=1e-4)
        weights = (await parcel).payload
        for name, weight in one.exported().items():
            np.testing.assert_allclose(weights[name], weight, atol=1e-5, rtol=0)
        await made[0].save(str(tmp_path / "v1"), {"role": "solver"})
        after = await made[0].learn(SAMPLES, ["b"], block())
        with pytest.raises(InvariantError, match="written once"):  # all ranks say so, and go on
            await made[0].save(str(tmp_path / "v1"), {})

        pids = await made.pids()
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(Fault, match="learner-solver_died"):
            await made[0].learn(SAMPLES, ["b"], block())
        await made[0].load(str(tmp_path / "v1"))
        assert set(await made.pids()).isdisjoint(pids) and said[-1] == "learner-solver is back"
        again = await made[0].learn(SAMPLES, ["b"], block())
        same = set(after) - {"seconds", "busy", "mfu"}
        assert {key: again[key] for key in same} == {key: after[key] for key in same}

    try:
        asyncio.run(play())
    finally:
        made.end()


def test_one_that_dies_between_two_calls_is_missed_by_the_next_one() -> None:
    """Ray would start it again unseen, and the next call would be answered without its state."""
    cfg = config(restarts=1)
    cfg.solver.learner.kind = "simulated"
    made, said = crew(cfg, "learner-solver")

    async def play() -> None:
        await made.ready()
        for left in (True, False):
            [pid] = await made.pids()
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(Fault, match="learner-solver_died"):
                for _ in range(100):  # until Ray has noticed
                    await made[0].anchor_weights()
                    await asyncio.sleep(0.1)
            if left:
                await made[0].anchor_weights()
                assert await made.pids() != [pid] and said[-1] == "learner-solver is back"
        with pytest.raises(SspError, match="restarts are used up"):
            await made[0].anchor_weights()

    try:
        asyncio.run(play())
    finally:
        made.end()
