"""The coordinator's side of transfer: how each learner's weights travel, and that they arrive.

Owns the choice of a kind at the start, broadcasts, updates in flight, and what happens when a way fails. Promises that a
failed way is said, and that the other way which is then taken (a parcel by the object store) is an explicit call to the
learner, said too (law 6); that a publication which nobody can give any more is a LearnerLost; that every wait has a
deadline. Refuses to see weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ssp.base.crew import Crew
from ssp.base.errors import Fault
from ssp.config.crews import learners
from ssp.config.schema import Config
from ssp.selfplay.cast import Cast
from ssp.selfplay.lost import GONE, LearnerLost, call_learner
from ssp.selfplay.records import Ref
from ssp.selfplay.transfer.broadcast import FAILED, Call
from ssp.selfplay.transfer.choose import SHARE, between_gpus, choose
from ssp.selfplay.transfer.fittings import spare
from ssp.selfplay.transfer.parcel import BROADCAST, Place, Plan

LOST = (GONE, "weights_missed")
"""Faults of a player that another parcel with the same weights mends."""

TRIES = 6
"""How often a player is asked where it is."""


class Stop(NamedTuple):
    """One player that weights are brought to."""

    role: str
    crew: Crew
    worker: int

    async def call(self, method: str, *args: Any) -> Any:
        """Call it."""
        return await self.crew.call(self.worker, method, *args)


@dataclass
class Route:
    """How one learner's weights travel: the plan, where it and the players are, and whether a group of broadcasts stands."""

    plan: Plan
    learner: Place
    stops: list[Stop]
    engines: list[Place]
    formed: bool = False


class Courier:
    """Brings publications to the players. `run`, `folder`: name and path of the run; `say`: a line for the user.

    `trains`: learners by the role that they are called after, with the roles whose players their weights go to.
    """

    def __init__(self, cfg: Config, cast: Cast, run: str, folder: str, say: Callable[[str], None]) -> None:
        self._cfg, self._cast, self._run, self._folder, self._say = cfg, cast, run, folder, say
        self.trains = learners(cfg)
        self._routes: dict[str, Route] = {}
        self._seconds: dict[str, dict[str, float]] = {}

    async def prepare(self, name: str) -> None:
        """Choose a kind by where the processes are, and tell the learner. InputError when it cannot work."""
        learner = await call_learner(self._cast, name, "place")
        crews = {role: self._cast.players(role) for role in self.trains[name]}
        stops = [Stop(role, crew, i) for role, crew in crews.items() for i in range(crew.size)]
        engines = [await self._ask(stop, "place") for stop in stops]
        room = SHARE * self._cfg.ray.object_store_mb * 1e6 / sum(self.spare(other) for other in self.trains)
        who = " and ".join(self.trains[name])
        kind, why = choose(self._cfg.transfer.kind, who, learner, engines, room)
        known = self._routes.get(name)
        if known is None or known.plan.kind != kind:
            self._say(f"{who} weights travel by {kind} ({why})")
        plan = Plan(kind, self._run, name, self._folder, self.spare(name), self._cfg.transfer.verify)
        await call_learner(self._cast, name, "publish_by", plan)
        self._routes[name] = Route(plan, learner, stops, engines)

    async def deliver(self, name: str, versions: Mapping[str, int], parcel: Ref, serial: int) -> Ref:
        """Bring a new publication to all players that do not fetch it when they play; the parcel to play with. `versions`:
        its number for each role.

        LearnerLost."""
        route = self._routes[name]
        if route.plan.kind == BROADCAST:
            return await self._broadcast(name, route, versions, parcel, serial)
        if self._cfg.schedule.in_flight:
            live = [stop for stop in route.stops if getattr(self._cfg.schedule.max_staleness, stop.role) > 0]
            done = await asyncio.gather(
                *[stop.call("refresh", versions[stop.role], parcel) for stop in live], return_exceptions=True
            )
            for stop, result in zip(live, done, strict=True):
                if isinstance(result, Fault):  # its next play brings them
                    version = f"{stop.role} version {versions[stop.role]}"
                    self._say(f"{stop.crew.name}-{stop.worker} missed {version}: {result}")
                elif isinstance(result, BaseException):
                    raise result
                else:
                    self.note(stop.role, result)
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

    async def _broadcast(self, name: str, route: Route, versions: Mapping[str, int], parcel: Ref, serial: int) -> Ref:
        try:
            if not route.formed:
                await self._form(name, route)
            sent = self._learner(name, "send", serial)
            taken = [stop.call("receive", versions[stop.role], parcel) for stop in route.stops]
            for stop, seconds in zip(route.stops, (await _all(sent, *taken))[1:], strict=True):
                self.note(stop.role, seconds)
        except Fault as fault:
            route.formed = False
            await self._disband(name, route)
            return await self.again(name, versions[name], serial, str(fault))
        return parcel

    async def _form(self, name: str, route: Route) -> None:
        """A new group of the learner and all players, restarted ones too."""
        host = route.learner.host
        if all(place.memory == route.learner.memory for place in route.engines):
            host = "127.0.0.1"
        port = await call_learner(self._cast, name, "listen", host)
        gpus = between_gpus(route.learner, route.engines)
        call = Call(host, port, len(route.stops) + 1, gpus, self._cfg.placement.call_timeout / 5)
        joins = [
            stop.call("join", call, rank, host if host == "127.0.0.1" else place.host)
            for rank, (stop, place) in enumerate(zip(route.stops, route.engines, strict=True), start=1)
        ]
        await _all(self._learner(name, "join", call, host), *joins)
        route.formed = True

    async def _disband(self, name: str, route: Route) -> None:
        """Everyone leaves what is left of the group; who has died left it by that."""
        for leave in (call_learner(self._cast, name, "leave"), *(stop.call("leave") for stop in route.stops)):
            try:
                await leave
            except Fault as fault:
                self._say(f"{name} weights: {fault}")

    async def _learner(self, name: str, method: str, *args: Any) -> Any:
        """A call in which the learner may find a group broken, which is no fault of its own."""
        try:
            return await self._cast.learners[name].call(0, method, *args)
        except Fault as fault:
            if fault.cause == FAILED:
                raise
            raise LearnerLost(f"{name} learner: {fault}") from fault

    async def _ask(self, stop: Stop, method: str) -> Any:
        """An idempotent call to a player, made again when it died."""
        for _ in range(TRIES - 1):
            try:
                return await stop.call(method)
            except Fault:
                continue
        return await stop.call(method)

    def spare(self, name: str) -> int:
        """Publications that must stay of a learner, or of the one that trains the role `name`."""
        trained = next(roles for roles in self.trains.values() if name in roles)
        return max(spare(self._cfg, role) for role in trained)


async def _all(*calls: Any) -> list[Any]:
    """All results; after all have ended, the first failure is raised, a learner's before a player's."""
    done = await asyncio.gather(*calls, return_exceptions=True)
    failed = [result for result in done if isinstance(result, BaseException)]
    if failed:
        raise next((error for error in failed if not isinstance(error, Fault)), failed[0])
    return done
