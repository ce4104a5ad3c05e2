"""Pools that follow the cluster: more players and replicas of retriever shards when nodes join, fewer when nodes leave.

Owns the size of elastic pools: as many for the cluster's CPUs as the run started with, within the bounds of
`placement.elastic`. Promises that a new player takes work, and a new replica searches, only once it answers, that one that
leaves ends its calls first, that those on a node that leaves go first and those on one that drains are replaced before, and
that every change is said. Refuses to move one: a dead one on a lost node is Ray's to start elsewhere, as long as the pool
has a place for it; a replica that joined is given up with its node, and another one joins where there is room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import ray
from ray._private import state
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors import fleet
from actors.crew import Member, RayCrew, last_line
from actors.program import Program
from actors.watch.deaths import Deaths
from ssp.config.chaos_rules import REPLICA, bounds
from ssp.config.schema import Config
from ssp.errors import SspError

EVERY = 2.0
"""Seconds between two looks at the nodes."""


@dataclass
class Pool:
    """One role's crew, or one shard's, its bounds, its size at the start, the number of its next member, and how one leaves.

    `shard`: a member that joins stays on its node, and searches by itself. `failed`: nodes on which one did not start.
    """

    crew: RayCrew
    least: int
    most: int
    base: int
    next: int
    leave: Callable[[Member], Coroutine[Any, Any, None]]
    shard: bool = False
    failed: set[str] = field(default_factory=set)

    def target(self, share: float) -> int:
        """How many members it should have when the cluster has `share` times the CPUs that it had."""
        return min(self.most, max(self.least, int(self.base * share + 1e-6)))


class Elastic:
    """The pools of one run."""

    def __init__(self, cfg: Config, program: Program, deaths: Deaths, say: Callable[[str], None]) -> None:
        self._cfg, self._program, self._deaths, self._say = cfg, program, deaths, say
        self._pools: list[Pool] = []
        crews = [(role, program.cast.players(role)) for role in cfg.roles]
        for what, crew in [*[(REPLICA, crew) for crew in program.shards], *crews]:
            least, most = bounds(cfg, what)
            if least < most and isinstance(crew, RayCrew):
                leave = self._searched if what == REPLICA else crew.drained
                self._pools.append(Pool(crew, least, most, crew.size, crew.size, leave, what == REPLICA))
        self._nodes: set[str] = set()
        self._first = sum(_nodes()[0].values())
        self._leaving: list[asyncio.Task[None]] = []

    async def watch(self) -> None:
        """Follow the cluster until cancelled."""
        while self._pools:
            await self.look()
            await asyncio.sleep(EVERY)

    async def look(self) -> None:
        """One look; at most one member more a pool."""
        cpus, draining = await asyncio.to_thread(_nodes)
        share = sum(cpus.values()) / self._first
        self._leaving = [task for task in self._leaving if not task.done() or task.exception()]
        for task in self._leaving:
            if task.done():
                await task
        for pool in self._pools:
            if self._nodes != set(cpus):
                pool.failed.clear()
            self._give_up(pool, cpus)
            target = pool.target(share)
            for member in self._last_first(pool.crew, set(cpus))[: max(0, pool.crew.size - target)]:
                pool.crew.drop(member)
                self._leaving.append(asyncio.create_task(pool.leave(member)))
                self._tell(pool, f"{member.name} leaves", cpus)
            if pool.crew.size - self._on(pool.crew, draining) < target and cpus.keys() - pool.failed:
                await self._join(pool, cpus)
        self._nodes = set(cpus)

    def _give_up(self, pool: Pool, cpus: dict[str, float]) -> None:
        """Take replicas out that Ray will not start again; where one died on its own, none is tried until nodes change."""
        for member in [m for m in pool.crew.members if pool.shard and self._over(m)]:
            seen = self._deaths.place(member.name)
            pool.failed |= cpus.keys() if seen is not None and seen.node in cpus else set()
            pool.crew.drop(member)
            ray.kill(member.handle, no_restart=True)  # dead as it is, it keeps its name until then
            self._tell(pool, f"{member.name} is given up", cpus)

    def _over(self, member: Member) -> bool:
        """Whether one has died for good."""
        seen = self._deaths.place(member.name)
        return seen is not None and not seen.alive and _state(member.handle) == "DEAD"

    def _on(self, crew: RayCrew, nodes: set[str]) -> int:
        """How many members are on these nodes."""
        places = [self._deaths.place(member.name) for member in crew.members]
        return sum(seen is not None and seen.node in nodes for seen in places)

    def _last_first(self, crew: RayCrew, nodes: set[str]) -> list[Member]:
        """Who goes first: those that are dead or whose node goes, then the youngest."""
        places = {member: self._deaths.place(member.name) for member in crew.members}
        lost = [m for m, at in places.items() if m.down or (at is not None and (not at.alive or at.node not in nodes))]
        return [*lost, *[m for m in reversed(crew.members) if m not in lost]]

    async def _join(self, pool: Pool, cpus: dict[str, float]) -> None:
        """Start one where ours are fewest for the CPUs, a replica where its shard is not; it is a member once it answers."""
        nodes = [seen.node for seen in self._deaths.seen.values() if seen.alive]

        def rank(node: str) -> tuple[int, float]:
            return pool.shard * self._on(pool.crew, {node}), nodes.count(node) / cpus[node]

        node = min(sorted(cpus.keys() - pool.failed), key=rank)
        name, number = f"{pool.crew.name}-{pool.next}", pool.next
        pool.next += 1
        where = NodeAffinitySchedulingStrategy(node, soft=not pool.shard)
        try:
            handle: Any = self._program.start(pool.crew, number, scheduling_strategy=where)
        except ValueError:
            return  # somebody has added one under this name by hand
        try:
            async with asyncio.timeout(self._cfg.ray.start_timeout):  # not wait_for: see actors/crew.py
                await handle.ping.remote()
        except (RayError, TimeoutError) as error:
            ray.kill(handle, no_restart=True)
            pool.failed.add(node)
            self._say(f"{name} could not join on node {node[:8]}: {last_line(error)}; tried again when nodes change")
            return
        pool.crew.grow(name, handle)
        self._tell(pool, f"{name} joined", cpus)

    async def _searched(self, member: Member) -> None:
        """End a replica once players' searches that it has begun are answered."""
        try:
            await asyncio.to_thread(fleet.drain, member.handle, member.name, self._cfg.retriever.timeout)
        except (RayError, SspError):  # it is dead or hangs: those who wait ask another one
            ray.kill(member.handle, no_restart=True)

    def _tell(self, pool: Pool, what: str, cpus: dict[str, float]) -> None:
        ours = f"replicas of {pool.crew.name}" if pool.shard else f"{pool.crew.name}s"
        self._say(f"{what}: {pool.crew.size} {ours} on {len(cpus)} nodes with {sum(cpus.values()):g} CPUs")


def _state(handle: Any) -> str:
    """Ray's word for the state of an actor."""
    return str(state.actors(handle._actor_id.hex()).get("State", "DEAD"))


def _nodes() -> tuple[dict[str, float], set[str]]:
    """CPUs of each living node that has some and is not about to leave; those that were told to leave (ray drain-node), for
    which Ray has no public name."""
    told = state.state._connect_and_get_accessor().get_draining_nodes()
    leaving = {node.hex() if isinstance(node, bytes) else str(node) for node in told}
    found = {node["NodeID"]: float(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]}
    return {node: cpus for node, cpus in found.items() if cpus > 0 and node not in leaving}, leaving & found.keys()
