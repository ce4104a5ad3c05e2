"""What the coordinator builds on when a node takes blocks along, on a real cluster of two."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from trainruns import MARK, PATIENCE, Cluster
from works import Work

from actors.cluster import connect, disconnect
from actors.crew import Patience, RayCrew
from actors.process import Alive
from ssp.base.errors import Fault
from ssp.selfplay.settings import load

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]


@ray.remote(num_cpus=0.1)
class Worker(Alive):
    def play(self) -> tuple[np.ndarray, str]:
        return np.ones(1_000_000, np.float32), "report"

    def add(self, *blocks: np.ndarray) -> float:
        return float(sum(block.sum() for block in blocks))


def raylets(mark: str) -> set[int]:
    """Process ids of the nodes of one cluster."""
    found = [process for process in psutil.process_iter(["name", "environ"]) if process.info["name"] == "raylet"]
    return {process.pid for process in found if (process.info["environ"] or {}).get(MARK) == mark}


def test_a_block_that_went_with_its_node_is_a_lost_payload_and_who_wanted_it_lives(tmp_path_factory, monkeypatch):
    """The call that wanted it has not begun, so a learner is as it was; and the same process answers the next one."""
    cluster = Cluster(Path(tmp_path_factory.mktemp("r")), several=True)
    try:
        head = raylets(cluster.mark)
        cluster.join(cpus=1)
        (second,) = raylets(cluster.mark) - head
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        connect(load("quickstart", []).ray)
        mine = ray.get_runtime_context().get_node_id()
        (other,) = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != mine]
        crews = [
            RayCrew(
                Work,
                name,
                [Worker.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()],
                Patience(PATIENCE, PATIENCE),
                print,
            )
            for name, node in (("p", mine), ("q", other), ("l", mine))
        ]

        async def play() -> None:
            here, there, learners = crews
            kept, lost = [(await crew[0].play())[0] for crew in (here, there)]
            [pid] = await learners.pids()
            os.kill(second, signal.SIGKILL)
            with pytest.raises(Fault, match="payload_lost"):
                await learners[0].add(kept, lost)
            assert await learners[0].add(kept) == 1_000_000 and await learners.pids() == [pid]

        asyncio.run(play())
    finally:
        disconnect()
        cluster.end()
