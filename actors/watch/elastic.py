"""Pools of players that follow the cluster: more when nodes join, fewer when nodes leave.

Owns the size of elastic pools: as many players for the cluster's CPUs as the run started with, within the bounds of
`placement.elastic`. Promises that a new player takes work only once it answers, that one that leaves ends its call first,
that players on a node that leaves go first, and that every change is said. Refuses to move a player: a dead one on a lost
node is Ray's to start elsewhere, as long as the pool has a place for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
from ray._private import state
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.crew import Member, RayCrew
from actors.program import Program
from actors.watch.deaths import Deaths
from ssp.config.chaos_rules import bounds
from ssp.config.schema import Config

EVERY = 2.0
"""Seconds between two looks at the nodes."""


@dataclass
class Pool:
    """One role's crew, its bounds, its size at the start, and the number of its next player."""

    crew: RayCrew
    least: int
    most: int
    base: int
    next: int

    def target(self, share: float) -> int:
        """How many players it should have when the cluster has `share` times the CPUs that it had."""
        return min(self.most, max(self.least, int(self.base * share + 1e-6)))


class Elastic:
    """The pools of one run."""

    def __init__(self, cfg: Config, program: Program, deaths: Deaths, say: Callable[[str], None]) -> None:
        self._cfg, self._program, self._deaths, self._say = cfg, program, deaths, say
        self._pools: list[Pool] = []
        crews = {"proposer": program.cast.proposers, "solver": program.cast.solvers}
        for role in cfg.roles:
            least, most = bounds(cfg, role)
            crew = crews[role]
            if least < most and isinstance(crew, RayCrew):
                self._pools.append(Pool(crew, least, most, crew.size, crew.size))
        self._first = sum(_cpus().values())
        self._failed: set[str] = set()
        """The nodes that there were when a player did not start."""
        self._leaving: list[asyncio.Task[None]] = []

    async def watch(self) -> None:
        """Follow the cluster until cancelled."""
        while self._pools:
            await self.look()
            await asyncio.sleep(EVERY)

    async def look(self) -> None:
        """One look; at most one player more a pool."""
        cpus = await asyncio.to_thread(_cpus)
        share = sum(cpus.values()) / self._first
        self._leaving = [task for task in self._leaving if not task.done() or task.exception()]
        for task in self._leaving:
            if task.done():
                await task
        for pool in self._pools:
            target = pool.target(share)
            for member in self._last_first(pool.crew, set(cpus))[: max(0, pool.crew.size - target)]:
                pool.crew.drop(member)
                self._leaving.append(asyncio.create_task(pool.crew.drained(member)))
                self._tell(pool.crew, f"{member.name} leaves", cpus)
            if pool.crew.size < target and self._failed != set(cpus):
                await self._join(pool, cpus)

    def _last_first(self, crew: RayCrew, nodes: set[str]) -> list[Member]:
        """Who goes first: those whose node goes, then the youngest."""
        places = {member: self._deaths.place(member.name) for member in crew.members}
        lost = [m for m, seen in places.items() if m.down or (seen is not None and seen.node not in nodes)]
        return [*lost, *[m for m in reversed(crew.members) if m not in lost]]

    async def _join(self, pool: Pool, cpus: dict[str, float]) -> None:
        """Start one where our players are fewest for the CPUs, and let it play once it answers."""
        nodes = [seen.node for seen in self._deaths.seen.values() if seen.alive]
        node = min(cpus, key=lambda name: nodes.count(name) / cpus[name])
        name = f"{pool.crew.name}-{pool.next}"
        where = NodeAffinitySchedulingStrategy(node, soft=True)
        handle: Any = self._program.start(pool.crew, pool.next, scheduling_strategy=where)
        pool.next += 1
        try:
            await asyncio.wait_for(_answer(handle), self._cfg.ray.start_timeout)
        except (RayError, TimeoutError) as error:
            ray.kill(handle, no_restart=True)
            self._failed = set(cpus)
            self._say(f"{name} could not join ({str(error).strip().splitlines()[-1:]}); tried again when nodes change")
            return
        pool.crew.grow(name, handle)
        self._tell(pool.crew, f"{name} joined", cpus)

    def _tell(self, crew: RayCrew, what: str, cpus: dict[str, float]) -> None:
        self._say(f"{what}: {crew.size} {crew.name}s on {len(cpus)} nodes with {sum(cpus.values()):g} CPUs")


async def _answer(handle: Any) -> None:
    await handle.ping.remote()


def _cpus() -> dict[str, float]:
    """CPUs of each living node that has some and is not about to leave."""
    leaving = {node.hex() if isinstance(node, bytes) else str(node) for node in _draining()}
    found = {node["NodeID"]: float(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]}
    return {node: cpus for node, cpus in found.items() if cpus > 0 and node not in leaving}


def _draining() -> list[Any]:
    """Nodes that were told to leave (ray drain-node); Ray has no public name for it."""
    return list(state.state._connect_and_get_accessor().get_draining_nodes())
