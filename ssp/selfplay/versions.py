"""Published weights: one number a publication, never used twice, and how each learner's weights
reach the players.

Promises strictly increasing numbers over the life of a run folder, that a version is the newest
only once it is on its way, that a way which failed is said before a parcel by the object store is
taken (law 6), and that a publication which nobody can give any more is a LearnerLost."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ssp.base.errors import Fault, hold
from ssp.base.played import Ref
from ssp.config.crews import bound, learners
from ssp.config.schema import Config
from ssp.selfplay.crews.cast import GONE, Cast
from ssp.selfplay.crews.seams import Players
from ssp.selfplay.records import Published
from ssp.selfplay.transfer.broadcast import Call
from ssp.selfplay.transfer.loader import spare
from ssp.selfplay.transfer.parcel import BROADCAST, OBJECT_STORE, Place

ANCHORS = 2**30
"""Versions of anchors count from here on: players tell weights apart by version, and in flight take
newer ones only."""

LOST = (GONE, "weights_missed")
"""Faults of a player that another parcel with the same weights mends."""


class Stop(NamedTuple):
    """A player that a learner's weights travel to."""

    role: str
    name: str
    player: Players
    place: Place


@dataclass
class Route:
    """How a learner's weights travel, and whether a group of broadcasts stands."""

    kind: str
    learner: Place
    stops: list[Stop]
    formed: bool = False


class WeightStore:
    """The newest publication of each role. `say`: a line for the user."""

    def __init__(self, cfg: Config, cast: Cast, say: Callable[[str], None]) -> None:
        self._cfg, self._cast, self._say = cfg, cast, say
        self._trains = learners(cfg)
        self._latest: dict[str, Published] = {}
        self.made: dict[str, dict[int, int]] = {
            role: {} for roles in self._trains.values() for role in roles
        }
        """Role → version → the update whose result it is."""
        self._routes: dict[str, Route] = {}
        self._seconds: dict[str, dict[str, float]] = {}
        self._mended: dict[tuple[str, int], Published] = {}
        self._mending = asyncio.Lock()

    def latest(self, role: str) -> Published:
        """The newest weights of `role`."""
        return self._latest[role]

    async def prepare(self, name: str) -> None:
        """Choose a kind by where the processes are, and tell the learner."""
        learner = await self._cast.learner(name).place()
        crews = [(role, self._cast.players[role]) for role in self._trains[name]]
        stops = [
            Stop(role, f"{c.name}-{i}", c[i], await c[i].place())
            for role, c in crews
            for i in range(c.size)
        ]
        kind, why = choose(self._cfg.transfer.kind, learner, [stop.place for stop in stops])
        if name not in self._routes or self._routes[name].kind != kind:
            self._say(f"{' and '.join(self._trains[name])} weights travel by {kind} ({why})")
        await self._cast.learner(name).publish_by(kind, self._spare(name))
        self._routes[name] = Route(kind, learner, stops)

    async def publish(
        self, learner: str, weights: Ref, incarnation: int, step: int, serial: int = 0
    ) -> Published:
        """Give `weights`, the result of step `step`, the next version number of each role that
        `learner` trains, and bring them to players that do not fetch them when they play; those of
        the role that it is called after. LearnerLost."""
        ledger, route = self._cast.ledger.first, self._routes[learner]
        versions = {
            role: await ledger.next_version(role, incarnation, step)
            for role in self._trains[learner]
        }
        if route.kind == BROADCAST:
            weights = await self._broadcast(learner, route, versions, weights, serial)
        elif self._cfg.schedule.in_flight:
            await self._refresh(route, versions, weights)
        self._latest |= {
            role: Published(version, weights, serial) for role, version in versions.items()
        }
        for role, version in versions.items():
            self.made[role][version] = step
        self._forget()
        return self._latest[learner]

    async def mend(self, role: str, lost: Published, why: str) -> Published:
        """The same version in another parcel, after a player found that of `lost` gone. LearnerLost
        when nobody has it, InputError for a member of the league, which is a folder of the run."""
        rule = (
            f"the weights of {role} version {lost.version}, a member of the league, are in the"
            " folder of the run"
        )
        hold(
            not lost.past,
            rule,
            why,
            "let every node see them and go on with resume=auto, or set league.match=self",
        )
        async with self._mending:  # many players miss the same
            known = self._mended.get((role, lost.version), lost)
            if known.weights is lost.weights:
                known = replace(
                    lost, weights=await self._again(role, lost.version, lost.serial, why)
                )
                self._mended[role, lost.version] = known
                if self._latest[role].version == lost.version:
                    self._latest[role] = known
                self._forget()
            return known

    def note(self, role: str, seconds: Mapping[str, float]) -> None:
        """Seconds that a player took for a publication; the slowest of each part counts."""
        kept = self._seconds.setdefault(role, {})
        for part in ("sync_transfer", "sync_load"):
            if part in seconds:
                kept[f"time/{part}"] = max(kept.get(f"time/{part}", 0.0), seconds[part])

    def figures(self, role: str) -> dict[str, float]:
        """`time/sync_transfer` and `time/sync_load` of the versions that were loaded since the last
        call."""
        return self._seconds.pop(role, {})

    def _forget(self) -> None:
        oldest = {role: latest.version - self._spare(role) for role, latest in self._latest.items()}
        self._mended = {key: kept for key, kept in self._mended.items() if key[1] > oldest[key[0]]}

    def _spare(self, name: str) -> int:
        return max(
            spare(self._cfg, role)
            for roles in self._trains.values()
            if name in roles
            for role in roles
        )

    async def _again(self, role: str, version: int, serial: int, why: str) -> Ref:
        """A parcel by the object store with the weights of a publication that did not arrive."""
        self._say(f"{role} version {version}: {why}; it is fetched from the learner")
        parcel, _ = await self._cast.learner(role).again(serial)
        return parcel

    async def _refresh(self, route: Route, versions: Mapping[str, int], parcel: Ref) -> None:
        """In flight, bring new weights to players that are at work; to one that misses them its
        next play does."""
        live = [stop for stop in route.stops if bound(self._cfg, stop.role) > 0]
        calls = [stop.player.refresh(versions[stop.role], parcel) for stop in live]
        for stop, result in zip(
            live, await asyncio.gather(*calls, return_exceptions=True), strict=True
        ):
            if isinstance(result, Fault):
                self._say(f"{stop.name} missed {stop.role} version {versions[stop.role]}: {result}")
            elif isinstance(result, BaseException):
                raise result
            else:
                self.note(stop.role, result)

    async def _broadcast(
        self, name: str, route: Route, versions: Mapping[str, int], parcel: Ref, serial: int
    ) -> Ref:
        learner = self._cast.learner(name)
        try:
            if not route.formed:
                await self._form(name, route)
            taken = [stop.player.receive(versions[stop.role], parcel) for stop in route.stops]
            _, *seconds = await _all(learner.send(serial), *taken)
            for stop, each in zip(route.stops, seconds, strict=True):
                self.note(stop.role, each)
        except Fault as fault:
            route.formed = False
            for leave in (learner.leave(), *(stop.player.leave() for stop in route.stops)):
                try:  # who has died left the group by that
                    await leave
                except Fault as left:
                    self._say(f"{name} weights: {left}")
            return await self._again(name, versions[name], serial, str(fault))
        return parcel

    async def _form(self, name: str, route: Route) -> None:
        """A new group of the learner and all players, restarted ones too."""
        learner = self._cast.learner(name)
        # where a restarted one is now
        places = await asyncio.gather(*[stop.player.place() for stop in route.stops])
        near = all(place.host == route.learner.host for place in places)
        host = "127.0.0.1" if near else route.learner.host
        gpus, wait = between_gpus(route.learner, places), self._cfg.placement.call_timeout / 5
        call = Call(host, await learner.listen(host), len(places) + 1, gpus, wait)
        ranks = enumerate(route.stops, start=1)
        joins = [
            stop.player.join(call, rank, host if near else places[rank - 1].host)
            for rank, stop in ranks
        ]
        await _all(learner.join(call, host), *joins)
        route.formed = True


async def _all(*calls: Any) -> list[Any]:
    """All results; after all have ended, the first failure is raised, a learner's before a
    player's."""
    done = await asyncio.gather(*calls, return_exceptions=True)
    if failed := [result for result in done if isinstance(result, BaseException)]:
        raise next((error for error in failed if not isinstance(error, Fault)), failed[0])
    return done


def choose(kind: str, learner: Place, engines: Sequence[Place]) -> tuple[str, str]:
    """(kind, why) for the weights of one learner; `kind`: as it was asked for."""
    if kind != "auto":
        return kind, "transfer.kind"
    if between_gpus(learner, engines):
        return BROADCAST, "a GPU each"
    return OBJECT_STORE, "from and to the hosts' memory"


def between_gpus(learner: Place, engines: Sequence[Place]) -> bool:
    """Whether a broadcast goes from GPU to GPU (NCCL): each process has one of its own. Else it
    goes over hosts (gloo)."""
    gpus = [place.gpu for place in (learner, *engines)]
    return "" not in gpus and len(set(gpus)) == len(gpus)
