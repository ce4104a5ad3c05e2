"""Plans carried out on fake nodes: Ray believes in GPUs that are not there, so that groups, nodes and ids are real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util import placement_group_table
from trainruns import PATIENCE, alive, until

from actors import placement, process
from actors.cluster import disconnect, environment
from ssp.base.errors import InputError
from ssp.capacity.memory import GB
from ssp.capacity.placement import make
from ssp.config.nodes import Node
from ssp.config.schema import Config

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[None]:
    """A head without GPUs, a node of 4 and one of 2."""
    environment(Config().ray)
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 0})
    try:
        for gpus in (4, 2):
            cluster.add_node(num_cpus=4, num_gpus=gpus)
        ray.init(address=cluster.address, log_to_driver=False)
        yield
    finally:
        disconnect()
        cluster.shutdown()


@ray.remote
class Actor:
    """Says where it is."""

    def where(self) -> tuple[str, list[str], str]:
        """Node, GPUs that Ray gave, GPUs that it sees."""
        given = [str(gpu) for gpu in ray.get_gpu_ids()]
        return ray.get_runtime_context().get_node_id(), given, os.environ.get("CUDA_VISIBLE_DEVICES", "")

    def begin(self, command: list[str]) -> int:
        """Start a process under the keeper; its id."""
        process.guard()
        return subprocess.Popen(command).pid


def config(**placed: Any) -> Config:
    """Two proposers, one solver of two GPUs, a solver's learner of two ranks, described as 80 GB cards."""
    cfg = Config()
    cfg.placement.players = {"proposer": 2, "solver": 1}
    cfg.placement.engine_gpus = cfg.placement.learner_gpus = 1
    cfg.placement.nodes = "1x4x80,1x2x80"
    cfg.ray.start_timeout = 20
    cfg.proposer.policy, cfg.referee.verifier = "frozen", "none"
    for block in (cfg.proposer, cfg.solver):
        block.engine.kind = "vllm"
    cfg.solver.engine.tensor_parallel = 2
    cfg.solver.learner.ranks = 2
    for key, value in placed.items():
        assert hasattr(cfg.placement, key), key
        setattr(cfg.placement, key, value)
    return cfg


def asked(groups: placement.Groups, process: str, index: int) -> tuple[str, list[str], str]:
    """Where an actor of the plan lands."""
    actor: Any = Actor.options(num_cpus=0.1, **groups.where(process, index)).remote()
    found = ray.get(actor.where.remote(), timeout=PATIENCE)
    KEPT.append(actor)
    return found


KEPT: list[Any] = []


def test_units_land_where_the_plan_says(three_nodes: None) -> None:
    cfg = config()
    plan = placement.planned(cfg)
    groups = placement.Groups(plan, cfg, "landing")
    try:
        told = {unit.name: [plan.nodes[slot.node].name for slot in slots] for unit, slots in plan.placed}
        node, given, _ = asked(groups, "solver", 0)
        assert len(given) == 2 and told["solver-0"] == [node, node]
        taken = [(node, gpu) for gpu in given]
        for name, index, unit, bundle in [
            ("proposer", 0, "proposer-0", 0),
            ("proposer", 1, "proposer-1", 0),
            ("learner-solver", 0, "learner-solver", 0),
            ("learner-solver", 1, "learner-solver", 1),
        ]:
            node, given, _ = asked(groups, name, index)
            assert node == told[unit][bundle] and len(given) == 1
            taken.append((node, given[0]))
        assert len(set(taken)) == 6  # nobody shares
        assert groups.where("judge", 0) == {} and groups.where("ledger", 0) == {}
    finally:
        KEPT.clear()
        groups.end()
    states = {found["state"] for found in placement_group_table().values() if found["name"].startswith("landing")}
    assert states == {"REMOVED"}


def test_engines_and_learners_share_gpus_that_an_engine_is_told(three_nodes: None) -> None:
    """Two engine ranks at half a GPU each: Ray gives one actor no such thing, the group does."""
    cfg = config(
        layout="colocate",
        engine_gpus=0.5,
        learner_gpus=0.5,
        nodes="1x4x80,1x2x80",
        players={"proposer": 1, "solver": 1},
    )
    plan = make(cfg, placement.nodes(cfg))
    groups = placement.Groups(plan, cfg, "shared")
    try:
        node, given, seen = asked(groups, "solver", 0)
        assert given == [] and len(set(seen.split(","))) == 2
        ranks = [asked(groups, "learner-solver", rank) for rank in range(2)]
        assert {at for at, _, _ in ranks} == {node} and [gpus[0] for _, gpus, _ in ranks] == seen.split(",")
    finally:
        KEPT.clear()
        groups.end()


EIGHT = "Qwen/Qwen2.5-32B-Instruct"
"""A model that eight GPUs part: 40 heads, 8 of keys."""


def test_what_the_cluster_lacks_is_named(three_nodes: None) -> None:
    with pytest.raises(InputError, match="6 GPUs on 3 nodes, 8 are asked for"):
        placement.planned(config(players={"proposer": 4, "solver": 1}))
    with pytest.raises(InputError, match="the largest node has 4.*tensor_parallel"):
        cfg = config()
        cfg.solver.model, cfg.solver.engine.tensor_parallel = EIGHT, 8
        placement.planned(cfg)
    with pytest.raises(InputError, match=r"no nvidia-smi\. Next: say it: placement\.nodes"):
        placement.planned(config(nodes=""))


@pytest.mark.covers("U9")
def test_a_group_that_never_comes_is_named_and_removed(three_nodes: None) -> None:
    cfg = config()
    cfg.ray.start_timeout = 3
    there = sorted(placement.nodes(cfg), key=lambda node: -node.gpus)
    believed = [Node(there[0].name, 8, 80 * GB), *there[1:]]
    cfg.solver.model, cfg.solver.engine.tensor_parallel = EIGHT, 8
    cfg.solver.policy = "frozen"
    with pytest.raises(InputError, match=r"broken-solver-0 wants GPU 8 .*GPU 4"):
        placement.Groups(make(cfg, [*believed, Node(there[1].name, 2, 80 * GB)]), cfg, "broken")
    left = [found for found in placement_group_table().values() if found["name"].startswith("broken")]
    assert {found["state"] for found in left} == {"REMOVED"}


def test_what_an_actor_started_ends_with_it(three_nodes: None, tmp_path: Path) -> None:
    """A child, and a grandchild that outlives it, of an actor that is killed."""
    program = (
        "import subprocess, sys, time\n"
        "late = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'late')!r}, 'w').write(str(late.pid))\n"
        "time.sleep(600)\n"
    )
    actor: Any = Actor.options(num_cpus=0.1).remote()
    child = ray.get(actor.begin.remote([sys.executable, "-c", program]), timeout=PATIENCE)
    until("a grandchild", lambda: (tmp_path / "late").exists() and (tmp_path / "late").read_text() != "")
    late = int((tmp_path / "late").read_text())
    pid = ray.get(actor.__ray_call__.remote(lambda self: os.getpid()), timeout=PATIENCE)
    assert alive(child) and alive(late)
    os.kill(pid, signal.SIGKILL)
    until("both have ended", lambda: not alive(child) and not alive(late))
