"""The coordinator's side of transfer: how each learner's weights travel, and that they arrive.

Owns the choice of a kind at the start, broadcasts, updates in flight, and what happens when a way fails. Promises that a
failed way is said, and that the other way which is then taken (a parcel by the object store) is an explicit call to the
learner, said too (law 6); that a publication which nobody can give any more is a LearnerLost; that every wait has a
deadline. Refuses to see weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from ssp.base.errors import Fault, InputError
from ssp.config.crews import bound, learners
from ssp.config.schema import Config
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.crews.lost import GONE
from ssp.selfplay.crews.seams import Players
from ssp.selfplay.records import Ref
from ssp.selfplay.transfer.broadcast import Call
from ssp.selfplay.transfer.loader import spare
from ssp.selfplay.transfer.parcel import BROADCAST, OBJECT_STORE, SHM, Place, Plan

SHARE = 0.5
"""Of the object store, what published weights may take for `auto` to choose it; episodes need the rest. Where they fit it is
the fastest way on one node at every size (tests/bench/weight_sync.py), since its pages are in use already; where they do
not, Ray would write them to the disk."""

LOST = (GONE, "weights_missed")
"""Faults of a player that another parcel with the same weights mends."""

TRIES = 6
"""How often a player is asked where it is."""


class Stop(NamedTuple):
    """One player that weights are brought to."""

    role: str
    name: str
    player: Players


@dataclass
class Route:
    """How one learner's weights travel: the plan, where it and the players are, and whether a group of broadcasts stands."""

    plan: Plan
    learner: Place
    stops: list[Stop]
    engines: list[Place]
    formed: bool = False


class WeightSync:
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
        learner = await self._cast.learner(name).place()
        crews = {role: self._cast.players[role] for role in self.trains[name]}
        stops = [Stop(role, f"{crew.name}-{i}", crew[i]) for role, crew in crews.items() for i in range(crew.size)]
        engines = [await _placed(stop.player) for stop in stops]
        room = SHARE * self._cfg.ray.object_store_mb * 1e6 / sum(self.spare(other) for other in self.trains)
        who = " and ".join(self.trains[name])
        kind, why = choose(self._cfg.transfer.kind, who, learner, engines, room)
        known = self._routes.get(name)
        if known is None or known.plan.kind != kind:
            self._say(f"{who} weights travel by {kind} ({why})")
        plan = Plan(kind, self._run, name, self._folder, self.spare(name), self._cfg.transfer.verify)
        await self._cast.learner(name).publish_by(plan)
        self._routes[name] = Route(plan, learner, stops, engines)

    async def deliver(self, name: str, versions: Mapping[str, int], parcel: Ref, serial: int) -> Ref:
        """Bring a new publication to all players that do not fetch it when they play; the parcel to play with. `versions`:
        its number for each role.

        LearnerLost."""
        route = self._routes[name]
        if route.plan.kind == BROADCAST:
            return await self._broadcast(name, route, versions, parcel, serial)
        if self._cfg.schedule.in_flight:
            live = [stop for stop in route.stops if bound(self._cfg, stop.role) > 0]
            done = await asyncio.gather(
                *[stop.player.refresh(versions[stop.role], parcel) for stop in live], return_exceptions=True
            )
            for stop, result in zip(live, done, strict=True):
                if isinstance(result, Fault):  # its next play brings them
                    version = f"{stop.role} version {versions[stop.role]}"
                    self._say(f"{stop.name} missed {version}: {result}")
                elif isinstance(result, BaseException):
                    raise result
                else:
                    self.note(stop.role, result)
        return parcel

    async def again(self, role: str, version: int, serial: int, why: str) -> Ref:
        """A parcel by the object store with the weights of a publication that did not arrive. LearnerLost."""
        self._say(f"{role} version {version}: {why}; it is fetched from the learner")
        parcel, _ = await self._cast.learner(role).again(serial)
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
            sent = self._cast.learner(name).send(serial)
            taken = [stop.player.receive(versions[stop.role], parcel) for stop in route.stops]
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
        port = await self._cast.learner(name).listen(host)
        gpus = between_gpus(route.learner, route.engines)
        call = Call(host, port, len(route.stops) + 1, gpus, self._cfg.placement.call_timeout / 5)
        joins = [
            stop.player.join(call, rank, host if host == "127.0.0.1" else place.host)
            for rank, (stop, place) in enumerate(zip(route.stops, route.engines, strict=True), start=1)
        ]
        await _all(self._cast.learner(name).join(call, host), *joins)
        route.formed = True

    async def _disband(self, name: str, route: Route) -> None:
        """Everyone leaves what is left of the group; who has died left it by that."""
        for leave in (self._cast.learner(name).leave(), *(stop.player.leave() for stop in route.stops)):
            try:
                await leave
            except Fault as fault:
                self._say(f"{name} weights: {fault}")

    def spare(self, name: str) -> int:
        """Publications that must stay of a learner, or of the one that trains the role `name`."""
        trained = next(roles for roles in self.trains.values() if name in roles)
        return max(spare(self._cfg, role) for role in trained)


async def _placed(player: Players) -> Place:
    """Where a player is, asked again when it died."""
    for _ in range(TRIES - 1):
        with suppress(Fault):
            return await player.place()
    return await player.place()


async def _all(*calls: Any) -> list[Any]:
    """All results; after all have ended, the first failure is raised, a learner's before a player's."""
    done = await asyncio.gather(*calls, return_exceptions=True)
    failed = [result for result in done if isinstance(result, BaseException)]
    if failed:
        raise next((error for error in failed if not isinstance(error, Fault)), failed[0])
    return done


def choose(kind: str, role: str, learner: Place, engines: Sequence[Place], room: float) -> tuple[str, str]:
    """(kind, why) for one role. `room`: bytes that one of its publications may take in the object store.

    InputError when the kind that was asked for cannot work where the processes are.
    """
    together = all(place.memory == learner.memory for place in engines)
    if kind == SHM and not together:
        hosts = ", ".join(sorted({place.host for place in (learner, *engines)}))
        rule = f"transfer.kind=shm needs the {role}'s learner and engines on one node"
        raise InputError(rule, f"they are on {hosts}", "set transfer.kind=auto")
    if kind != "auto":
        return kind, "transfer.kind"
    if between_gpus(learner, engines):
        return BROADCAST, "a GPU each"
    if not together:
        return OBJECT_STORE, "several nodes"
    if learner.nbytes > room:
        return SHM, f"one node, {learner.nbytes / 1e6:.0f} MB is more than ray.object_store_mb has room for"
    return OBJECT_STORE, "one node"


def between_gpus(learner: Place, engines: Sequence[Place]) -> bool:
    """Whether a broadcast goes from GPU to GPU (NCCL): each process has one of its own. Else it goes over hosts (gloo)."""
    gpus = [place.gpu for place in (learner, *engines)]
    return "" not in gpus and len(set(gpus)) == len(gpus)
