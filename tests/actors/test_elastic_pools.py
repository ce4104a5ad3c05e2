"""Replicas of shards follow a cluster that is made up: nodes join, are lost, drain, fill up; replicas die."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray.exceptions import ActorDiedError, GetTimeoutError

from actors import crew as crews
from actors import fleet
from actors.crew import Patience, RayCrew
from actors.watch import elastic
from ssp.config import load
from ssp.config.schema import Config
from ssp.errors import InputError, SspError

LOOKS = 8
"""Enough for everything to come to rest: each adds one replica at most."""
MOST = 4


@functools.cache
def configured(replicas: int) -> Config:
    return load("quickstart", [f"retriever.replicas={replicas}", f"placement.elastic.replicas=1-{MOST}"])


class Handle:
    """One replica, on a node. `state`: as Ray says."""

    def __init__(self, name: str, node: str, state: str = "ALIVE") -> None:
        self.name, self.node, self.state = name, node, state
        self.ping = SimpleNamespace(remote=self._ping)

    async def _ping(self) -> None:
        if self.state != "ALIVE":
            raise ActorDiedError()


class World:
    """A cluster, the replicas of one shard on it, and the pool that follows. `drains`: those that ended their searches."""

    def __init__(self, nodes: dict[str, float], replicas: int = 1) -> None:
        self.nodes, self.draining, self.full = dict(nodes), set[str](), set[str]()
        self.drains, self.killed, self.said, self.started = list[str](), list[str](), list[str](), 0
        names = [*nodes]
        self.all = [Handle(f"shard-0-{i}", names[i % len(names)]) for i in range(replicas)]
        self.crew = RayCrew("shard-0", self.all[:], Patience(5, 5), self.said.append)
        self.stops: Callable[[], None] = lambda: None
        cast: Any = SimpleNamespace(players=lambda role: None)
        program: Any = SimpleNamespace(shards=[self.crew], cast=cast, start=self._start)
        self.elastic = elastic.Elastic(configured(replicas), program, self, self.said.append)  # type: ignore[arg-type]

    @property
    def seen(self) -> dict[str, Any]:
        """As the look at all actors has it."""
        return {it.name: SimpleNamespace(node=it.node, alive=it.state == "ALIVE") for it in self.all}

    def place(self, name: str) -> Any:
        return self.seen.get(name)

    def _start(self, crew: RayCrew, number: int, scheduling_strategy: Any) -> Handle:
        self.started += 1
        node = scheduling_strategy.node_id
        assert not scheduling_strategy.soft and node in self.nodes and node not in self.draining
        self.all.append(Handle(f"{crew.name}-{number}", node, "DEAD" if node in self.full else "ALIVE"))
        return self.all[-1]

    def drain(self, handle: Handle, name: str, seconds: float) -> None:
        assert name == handle.name
        self.drains.append(name)
        self.stops()
        handle.state = "DEAD"

    def kill(self, handle: Handle, no_restart: bool) -> None:
        assert no_restart
        self.killed.append(handle.name)
        handle.state = "DEAD"

    def lose(self, node: str) -> None:
        """A node goes: one of the start comes back on another one, one that joined does not."""
        self.nodes.pop(node)
        self.draining.discard(node)
        for it in [it for it in self.all if it.node == node and it.state == "ALIVE"]:
            if it.name == "shard-0-0":
                it.node = next(iter(self.nodes))
            else:
                it.state = "DEAD"

    def look(self, times: int = 1) -> None:
        """So many looks; what leaves has left after each."""

        async def looked() -> None:
            for _ in range(times):
                await self.elastic.look()
                await asyncio.gather(*self.elastic._leaving)

        asyncio.run(looked())

    @property
    def living(self) -> dict[str, str]:
        """Node by replica of the pool."""
        return {m.name: m.handle.node for m in self.crew.members if m.handle.state == "ALIVE"}


@contextmanager
def world(nodes: dict[str, float], replicas: int = 1) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        holds: list[World] = []

        def cluster() -> tuple[dict[str, float], set[str]]:
            if not holds:
                return dict(nodes), set()
            it = holds[0]
            return {n: cpus for n, cpus in it.nodes.items() if n not in it.draining}, set(it.draining)

        patch.setattr(elastic, "_nodes", cluster)
        there: Any = lambda node, soft: SimpleNamespace(node_id=node, soft=soft)  # noqa: E731 (Ray's wants ids of its own)
        patch.setattr(elastic, "NodeAffinitySchedulingStrategy", there)
        patch.setattr(elastic, "_state", lambda handle: handle.state)
        patch.setattr(elastic.fleet, "drain", lambda *args: holds[0].drain(*args))
        patch.setattr(elastic.ray, "kill", lambda handle, no_restart: holds[0].kill(handle, no_restart))
        assert crews.ray is elastic.ray
        holds.append(World(nodes, replicas))
        yield holds[0]


def test_a_node_that_joins_gets_a_replica_and_gives_it_up_when_it_is_lost() -> None:
    with world({"a": 4}) as it:
        it.nodes["b"] = 4
        it.look()
        assert it.living == {"shard-0-0": "a", "shard-0-1": "b"}
        assert it.said == ["shard-0-1 joined: 2 replicas of shard-0 on 2 nodes with 8 CPUs"]
        it.lose("b")
        it.look(LOOKS)
        assert it.living == {"shard-0-0": "a"} and it.started == 1 and it.drains == []
        assert it.said[1:] == ["shard-0-1 is given up: 1 replicas of shard-0 on 1 nodes with 4 CPUs"]
        it.nodes["c"] = 4
        it.look()
        assert it.living == {"shard-0-0": "a", "shard-0-2": "c"}


def test_one_on_a_node_that_drains_is_replaced_first_and_ends_its_searches() -> None:
    with world({"a": 4}) as it:
        it.nodes["b"] = 4
        it.draining.add("a")
        it.look()
        assert it.living == {"shard-0-0": "a", "shard-0-1": "b"} and it.drains == []
        it.look(LOOKS)
        assert it.living == {"shard-0-1": "b"} and it.drains == ["shard-0-0"] and it.killed == []


def test_the_youngest_goes_when_the_cluster_shrinks_elsewhere_and_one_that_hangs_is_killed() -> None:
    def hangs() -> None:
        raise hung.pop()

    with world({"a": 4, "c": 4}) as it:
        hung: list[Exception] = [SspError("not done"), GetTimeoutError()]
        it.stops = hangs
        it.nodes |= {"b": 8}
        it.look()
        it.lose("c")
        it.nodes["b"] = 3
        it.look()
        assert it.living == {"shard-0-0": "a"} and it.drains == it.killed == ["shard-0-1"]
        it.nodes["b"] = 12
        it.look()
        it.nodes["b"] = 1
        it.look()
        assert it.drains == it.killed == ["shard-0-1", "shard-0-2"] and hung == []


def test_a_replica_that_does_not_fit_goes_elsewhere_and_is_tried_again_when_nodes_change() -> None:
    with world({"a": 4}) as it:
        it.nodes["b"] = 4
        it.full = {"a", "b"}
        it.look(LOOKS)
        assert it.started == 2 and it.living == {"shard-0-0": "a"}  # once on each node
        assert it.killed == ["shard-0-1", "shard-0-2"] and "tried again when nodes change" in it.said[-1]
        it.nodes["c"] = 1
        it.look(LOOKS)
        assert it.living == {"shard-0-0": "a", "shard-0-4": "c"} and it.started == 4


def test_one_that_died_for_good_by_itself_is_not_replaced_until_nodes_change() -> None:
    with world({"a": 4}) as it:
        it.nodes["b"] = 4
        it.look()
        it.all[1].state = "DEAD"
        it.look(LOOKS)
        assert it.started == 1 and it.living == {"shard-0-0": "a"}
        it.nodes["c"] = 1
        it.look(LOOKS)
        assert it.started == 2 and it.living == {"shard-0-0": "a", "shard-0-2": "b"}


def test_a_name_that_somebody_has_used_by_hand_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with world({"a": 4}) as it:
        start, taken = it._start, [ValueError("the name is taken")]

        def first_refused(*args: Any, **where: Any) -> Handle:
            if taken:
                raise taken.pop()
            return start(*args, **where)

        monkeypatch.setattr(it.elastic._program, "start", first_refused)
        it.nodes["b"] = 4
        it.look(2)
        assert it.living == {"shard-0-0": "a", "shard-0-2": "b"}


def test_a_replica_beyond_those_of_the_start_asks_for_free_memory(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "d0", "contents": "Title\\ntext"}\n')
    cfg = load("quickstart", [f"data.corpus={corpus}", "retriever.shards=1", "retriever.replicas=2"])
    cfg.data.eval = []
    part = fleet.parts(cfg)[0]
    assert (part.name, part.count, part.seat(1)) == ("shard-0", 2, ("retriever", 1))
    needs = [part.args(i)[2] for i in range(3)]
    assert needs[:2] == [0, 0] and needs[2] == pytest.approx(110, abs=1)  # the process; the corpus is nothing
    shard: Any = part.actor.__ray_metadata__.modified_class
    assert shard(cfg, 0, needs[2]).describe()["train"].total == 1
    with pytest.raises(InputError, match="fits its memory"):
        shard(cfg, 0, 1e9)
    cfg.retriever.memory_mb = 100
    with pytest.raises(InputError, match="fits its memory"):
        shard(cfg, *part.args(2)[1:])


DEEDS = st.sampled_from(["join", "lose", "drain", "die", "fill"])


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(DEEDS, st.integers(1, 8)), max_size=8))
def test_whatever_nodes_do_the_pool_comes_to_rest_within_its_bounds(deeds: list[tuple[str, int]]) -> None:
    with world({"n0": 4}) as it:
        for number, (deed, size) in enumerate(deeds, 1):
            stays = [node for node in it.nodes if node not in it.draining]
            if deed == "join":
                it.nodes[f"n{number}"] = size
            elif deed == "lose" and len(stays) > 1:
                it.lose(stays[size % len(stays)])
            elif deed == "drain" and len(stays) > 1:
                it.draining.add(stays[size % len(stays)])
            elif deed == "fill":
                it.full.add(stays[size % len(stays)])
            elif deed == "die" and len(it.living) > 1:
                next(h for h in it.all if h.name in it.living and h.name == [*it.living][-1]).state = "DEAD"
            for _ in range(LOOKS):
                served = bool(it.living)
                it.look()
                assert it.crew.size <= MOST + 1 and bool(it.living) == served  # one more only while it is replaced
        started, drained = it.started, len(it.drains)
        it.look(LOOKS)
        assert (it.started, len(it.drains)) == (started, drained)
        assert it.crew.size <= MOST and len(set(it.drains)) == drained and len(it.crew.members) == len(it.living)
        stays = {node: cpus for node, cpus in it.nodes.items() if node not in it.draining}
        target = min(MOST, max(1, int(sum(stays.values()) / 4)))
        if not it.full and not any(deed == "die" for deed, _ in deeds):
            assert len(it.living) == target and set(it.living.values()) <= stays.keys()
        assert len(it.living) <= max(target, 1)
