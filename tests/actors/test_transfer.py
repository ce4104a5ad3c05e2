"""Weights between real processes: processes that die, updates in flight."""

from __future__ import annotations

import asyncio
import os
import signal

import numpy as np
import pytest
import ray
from trainruns import PATIENCE, ledger_is_sound, run
from works import Work

from actors.crew import Patience, RayCrew
from actors.process import Alive
from ssp.base.errors import Fault

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

QUICK = ["save.every=4", "void.limit=1", "placement.call_timeout=30"]


def test_in_flight_episodes_have_two_versions_and_are_trained(ray_cluster, tmp_path):
    bounds = {"proposer": 1, "solver": 2}
    settings = [
        *QUICK, "steps=6", "schedule.in_flight=true", "proposer.algorithm=grpo",
        "proposer.loss=tis", *(f"schedule.max_staleness.{role}={n}" for role, n in bounds.items()),
    ]  # fmt: skip
    with run(tmp_path / "flight", *settings, env=ray_cluster.env) as made:
        made.ends_well()
    assert made.steps() == 6 and "stale" not in made.counts()
    ledger_is_sound(made)
    # Which episodes a publication hits is a matter of time: some of one role or the other.
    spans = made.sql("SELECT policy_version_min, policy_version_max FROM episodes WHERE state = 'trained'")
    assert any(low < high for low, high in spans)
    assert all(0 < low <= high for low, high in spans)
    for role, bound in bounds.items():
        assert 0 < max(row["staleness/max"] for row in made.rows(role)) <= bound
    opponents = made.sql(
        "SELECT opponent_version_min, opponent_version_max FROM episodes WHERE opponent_version_min IS NOT NULL"
    )
    assert any(low < high for low, high in opponents)
    assert all(np.isfinite(row["loss"]) for row in made.rows("solver") if "loss" in row)


@ray.remote(num_cpus=0.1)
class Worker(Alive):
    def play(self) -> tuple[dict[str, np.ndarray], str]:
        return {"w": np.ones(1_000_000, np.float32)}, "report"

    def put(self) -> list[ray.ObjectRef]:
        return [ray.put({"w": np.ones(1_000_000, np.float32)})]

    def add(self, weights: dict[str, np.ndarray]) -> float:
        return float(weights["w"].sum())


def test_weights_of_a_dead_learner_are_there_or_a_fault_and_nobody_hangs(joined):
    learner, player = Worker.remote(), Worker.remote()
    learners, players = (
        RayCrew(Work, n, [h], Patience(60.0, PATIENCE), print) for n, h in (("l", learner), ("p", player))
    )

    async def play() -> None:
        payload, _ = await learners[0].play()
        [owned] = await learners[0].put()
        [pid] = await learners.pids()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(Fault, match="l_died"):
            while True:
                await learners[0].ping()
        assert await players[0].add(payload) == 1_000_000  # returned by a task: the coordinator owns it
        try:  # put by the dead process: such an object may die with its owner (law 10)
            assert await players[0].add(owned) == 1_000_000
        except Fault as fault:
            assert fault.cause == "payload_lost"

    asyncio.run(play())
