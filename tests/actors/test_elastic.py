"""Pools follow the cluster: a node joins, and players and a replica with it; it is lost and they go; the accounts hold."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import ray
from trainruns import LONG, PATIENCE, Cluster, run

from actors.cluster import disconnect
from actors.crew import Patience, RayCrew
from actors.members import SHARD, living
from actors.process import Alive
from actors.restarts import RAY, Policy, Restart
from actors.watch import chaos
from actors.watch.deaths import Deaths, told
from actors.watch.elastic import Pool
from launch import doctor
from ssp.config.cluster import FaultConfig
from ssp.errors import Fault

SMALL = [
    "placement.proposers=1",
    "placement.judges=1",
    "retriever.shards=1",
    "transfer.kind=object_store",
    "void.limit=1",
]


@pytest.mark.parametrize(("share", "size"), [(1.0, 2), (2.0, 4), (0.4, 1), (9.0, 6), (1.4, 2), (0.0, 1)])
def test_a_pool_is_in_proportion_to_the_cpus_within_its_bounds(share: float, size: int) -> None:
    assert Pool(None, least=1, most=6, base=2, next=2, leave=None).target(share) == size  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    """A cluster of its own that other nodes may join."""
    folder = Path(tempfile.mkdtemp(prefix="ssp-ray-", dir="/tmp"))
    made = Cluster(folder, several=True)
    yield made
    made.end()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_players_and_a_replica_come_with_a_node_and_go_with_it(nodes, tmp_path, capsys):
    settings = [
        *SMALL,
        LONG,
        "placement.elastic.solvers=1-4",
        "placement.elastic.replicas=1-2",
        "health.on_collapse=warn",
    ]
    with run(tmp_path / "pool", *settings, env=nodes.env, config="simulated") as made:
        made.until("the first step", lambda: made.steps() >= 1)
        nodes.join(4)
        made.until("two players more", lambda: "4 solvers on 2 nodes with 8 CPUs" in made.text())
        made.until("a replica more", lambda: "2 replicas of shard-0 on 2 nodes with 8 CPUs" in made.text())
        assert len(nodes.nodes("pool")) == 2
        made.until("players search it", lambda: _searches(nodes, "pool", "pool-shard-0-1"))
        made.until("both have played", lambda: _blocks(made.folder, 2) and _blocks(made.folder, 3))
        before = made.steps()
        os.kill(psutil.Process(nodes.actors("pool")["solver-2"]).ppid(), signal.SIGKILL)
        made.until("as few as before", lambda: "2 solvers on 1 nodes with 4 CPUs" in made.text())
        made.until("one replica again", lambda: "1 replicas of shard-0 on 1 nodes with 4 CPUs" in made.text())
        made.until("steps after that", lambda: made.steps() > before + 2)
        assert set(nodes.actors("pool")) >= {"shard-0-0"} and "shard-0-1" not in nodes.actors("pool")
        assert not [cause for cause in made.counts() if cause.startswith("retriever")]
        made.stops()
    lost = {line["actor"]: line for line in told(made.folder)}
    assert {"solver-2", "solver-3", "shard-0-1"} <= set(lost) and lost["solver-2"]["end"].startswith("its node is gone")
    assert doctor.main(["--ledger", str(made.folder / "ledger.db")]) == 0, capsys.readouterr().out


def _searches(nodes: Cluster, run_name: str, replica: str) -> float:
    """The calls that a replica has had."""
    ray.init(address=nodes.address, log_to_driver=False)
    try:
        [space] = {space for space, _, _ in living(run_name, SHARD)}
        there: Any = ray.get_actor(replica, namespace=space)
        return float(ray.get(there.state.remote(), timeout=PATIENCE)["calls"])
    finally:
        disconnect()


def _blocks(folder: Path, worker: int) -> bool:
    """Whether that worker has written a block of episodes."""
    return any(folder.glob(f"episodes/solver-*-{worker}.*"))


@ray.remote(num_cpus=0.1)
class Worker(Alive):
    """Adds."""

    def add(self, a: int, b: int) -> int:
        return a + b


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_crew_grows_and_shrinks_between_calls_and_a_node_is_killed_on_purpose(nodes, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)
    nodes.join(1)
    ray.init(address=nodes.address, namespace="elastic", log_to_driver=False)
    said: list[str] = []
    try:
        asyncio.run(_grow_and_shrink(tmp_path, said))
    finally:
        disconnect()
    assert [line for line in said if line.startswith("chaos: node")] and "its node is gone" in said[-1]


async def _grow_and_shrink(folder: Path, said: list[str]) -> None:
    home = ray.get_runtime_context().get_node_id()
    [other] = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != home]
    there: Any = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    handles = [
        Worker.options(name=f"run-worker-{i}", max_restarts=1, scheduling_strategy=there(node, soft=False)).remote()
        for i, node in enumerate((home, other))
    ]
    crew = RayCrew("worker", handles[:1], Patience(PATIENCE, PATIENCE), said.append)
    assert crew.size == 1 and await crew.call(1, "add", 1, 2) == 3  # who was split for two finds the one
    crew.grow("worker-1", handles[1])
    assert crew.size == 2 and await crew.call(1, "add", 1, 2) == 3

    policy = {"Worker": Restart(Policy(RAY, "nothing", "nothing"), 1)}
    deaths = Deaths("run", folder / "deaths.jsonl", policy, crew.calls.at_death, said.append)
    report: Any = SimpleNamespace(step=1)
    await chaos.Chaos([FaultConfig(do="node")], "run", deaths, report, said.append).watch()
    with pytest.raises(Fault, match="worker_died"):
        while True:
            await crew.call(1, "add", 1, 2)
    while not (lost := told(folder)):
        await asyncio.to_thread(deaths.look)
        await asyncio.sleep(0.2)
    assert lost[0]["actor"] == "worker-1" and lost[0]["chaos"] == "node" and lost[0]["log"] == []
    waiting = asyncio.create_task(crew.call(1, "add", 1, 2))
    await asyncio.sleep(0.3)
    leaving = crew.members[1]
    crew.drop(leaving)
    await crew.drained(leaving)
    with pytest.raises(Fault, match="taken out of the pool"):
        await waiting
    assert crew.size == 1 and await crew.call(1, "add", 2, 2) == 4
    deaths.end()
