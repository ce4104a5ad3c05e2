"""The coordinator's side of transfer: how each role's weights travel, and that they arrive.

Owns the choice of a kind at the start, broadcasts, updates in flight, and what happens when a way fails. Promises that a
failed way is said, and that the other way which is then taken (a parcel by the object store) is an explicit call to the
learner, said too (law 6); that a publication which nobody can give any more is a LearnerLost; that every wait has a
deadline. Refuses to see weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ssp.config.schema import Config
from ssp.episode import PROPOSER
from ssp.errors import Fault
from ssp.selfplay.cast import Cast
from ssp.selfplay.crew import Crew
from ssp.selfplay.lost import LearnerLost, call_learner
from ssp.selfplay.records import Ref
from ssp.transfer.broadcast import FAILED, Call
from ssp.transfer.choose import SHARE, between_gpus, choose
from ssp.transfer.fittings import spare
from ssp.transfer.parcel import BROADCAST, Place, Plan

LOST = ("payload_lost", "weights_missed")
"""Faults of a player that another parcel with the same weights mends."""

TRIES = 6
"""How often a player is asked where it is."""


@dataclass
class Route:
    """How one role's weights travel: the plan, where its processes are, and whether a group of broadcasts stands."""

    plan: Plan
    learner: Place
    engines: list[Place]
    formed: bool = False


class Courier:
    """Brings publications to the players. `run`, `folder`: name and path of the run; `say`: a line for the user."""

    def __init__(self, cfg: Config, cast: Cast, run: str, folder: str, say: Callable[[str], None]) -> None:
        self._cfg, self._cast, self._run, self._folder, self._say = cfg, cast, run, folder, say
        self._routes: dict[str, Route] = {}
        self._seconds: dict[str, dict[str, float]] = {}

    async def prepare(self, role: str) -> None:
        """Choose a kind by where the role's processes are, and tell its learner. InputError when it cannot work."""
        learner = await call_learner(self._cast, role, "place")
        engines = [await self._ask(role, worker, "place") for worker in range(self._crew(role).size)]
        publications = sum(spare(self._cfg, other) for other in self._cfg.roles)
        room = SHARE * self._cfg.ray.object_store_mb * 1e6 / publications
        kind, why = choose(self._cfg.transfer.kind, role, learner, engines, room)
        known = self._routes.get(role)
        if known is None or known.plan.kind != kind:
            self._say(f"{role} weights travel by {kind} ({why})")
        plan = Plan(kind, self._run, role, self._folder, spare(self._cfg, role), self._cfg.transfer.verify)
        await call_learner(self._cast, role, "publish_by", plan)
        self._routes[role] = Route(plan, learner, engines)

    async def deliver(self, role: str, version: int, parcel: Ref, serial: int) -> Ref:
        """Bring a new publication to all players of `role` that do not fetch it when they play; the parcel to play with.

        LearnerLost."""
        route = self._routes[role]
        if route.plan.kind == BROADCAST:
            return await self._broadcast(role, route, version, parcel, serial)
        if self._cfg.schedule.in_flight and getattr(self._cfg.schedule.max_staleness, role) > 0:
            crew = self._crew(role)
            done = await asyncio.gather(
                *[crew.call(worker, "refresh", version, parcel) for worker in range(crew.size)], return_exceptions=True
            )
            for worker, result in enumerate(done):
                if isinstance(result, Fault):  # its next play brings them
                    self._say(f"{crew.name}-{worker} missed {role} version {version}: {result}")
                elif isinstance(result, BaseException):
                    raise result
                else:
                    self.note(role, result)
        return parcel

    async def again(self, role: str, version: int, serial: int, why: str) -> Ref:
        """A parcel by the object store with the weights of a publication that did not arrive. LearnerLost."""
        self._say(f"{role} version {version}: {why}; it is fetched from the learner")
        parcel, _ = await call_learner(self._cast, role, "again", serial)
        return parcel

    def note(self, role: str, seconds: dict[str, float]) -> None:
        """Seconds that a player took for a publication; the slowest of each part counts."""
        kept = self._seconds.setdefault(role, {})
        for part in ("sync_transfer", "sync_load"):
            if part in seconds:
                kept[f"time/{part}"] = max(kept.get(f"time/{part}", 0.0), seconds[part])

    def figures(self, role: str) -> dict[str, float]:
        """`time/sync_transfer` and `time/sync_load` of the versions that were loaded since the last call."""
        return self._seconds.pop(role, {})

    async def _broadcast(self, role: str, route: Route, version: int, parcel: Ref, serial: int) -> Ref:
        crew = self._crew(role)
        try:
            if not route.formed:
                await self._form(role, route)
            sent = self._learner(role, "send", serial)
            taken = [crew.call(worker, "receive", version, parcel) for worker in range(crew.size)]
            for seconds in (await _all(sent, *taken))[1:]:
                self.note(role, seconds)
        except Fault as fault:
            route.formed = False
            await self._disband(role)
            return await self.again(role, version, serial, str(fault))
        return parcel

    async def _form(self, role: str, route: Route) -> None:
        """A new group of the learner and all players, restarted ones too."""
        crew, host = self._crew(role), route.learner.host
        if all(place.memory == route.learner.memory for place in route.engines):
            host = "127.0.0.1"
        port = await call_learner(self._cast, role, "listen", host)
        gpus = between_gpus(route.learner, route.engines)
        call = Call(host, port, crew.size + 1, gpus, self._cfg.placement.call_timeout / 5)
        joins = [
            crew.call(worker, "join", call, worker + 1, host if host == "127.0.0.1" else route.engines[worker].host)
            for worker in range(crew.size)
        ]
        await _all(self._learner(role, "join", call, host), *joins)
        route.formed = True

    async def _disband(self, role: str) -> None:
        """Everyone leaves what is left of the group; who has died left it by that."""
        crew = self._crew(role)
        for leave in (call_learner(self._cast, role, "leave"), *(crew.call(i, "leave") for i in range(crew.size))):
            try:
                await leave
            except Fault as fault:
                self._say(f"{crew.name}: {fault}")

    async def _learner(self, role: str, method: str, *args: Any) -> Any:
        """A call in which the learner may find a group broken, which is no fault of its own."""
        try:
            return await self._cast.learners[role].call(0, method, *args)
        except Fault as fault:
            if fault.cause == FAILED:
                raise
            raise LearnerLost(f"{role} learner: {fault}") from fault

    async def _ask(self, role: str, worker: int, method: str) -> Any:
        """An idempotent call to a player, made again when it died."""
        for _ in range(TRIES - 1):
            try:
                return await self._crew(role).call(worker, method)
            except Fault:
                continue
        return await self._crew(role).call(worker, method)

    def _crew(self, role: str) -> Crew:
        return self._cast.proposers if role == PROPOSER else self._cast.solvers


async def _all(*calls: Any) -> list[Any]:
    """All results; after all have ended, the first failure is raised, a learner's before a player's."""
    done = await asyncio.gather(*calls, return_exceptions=True)
    failed = [result for result in done if isinstance(result, BaseException)]
    if failed:
        raise next((error for error in failed if not isinstance(error, Fault)), failed[0])
    return done
