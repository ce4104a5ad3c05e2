"""Published weights: a version number for each publication, and the way of each learner's weights
to the players.

Promises strictly increasing numbers over the life of a run folder. If a player cannot get a
publication, that is said before the learner is asked for it again (law 6); if nobody has it any
more, that is a LearnerLost."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from ssp.base.errors import Fault, hold
from ssp.base.played import Ref
from ssp.base.values import Seconds, Values
from ssp.config.crews import bound, learners
from ssp.config.schema import Config
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.records import Published

ANCHORS = 2**30
"""The first version of an anchor. Players tell weights apart by version, and in flight take newer
ones only."""


class WeightStore:
    """The newest publication of each role. `say`: a line for the user."""

    def __init__(self, cfg: Config, cast: Cast, say: Callable[[str], None]) -> None:
        self._cfg = cfg
        self._cast = cast
        self._say = say
        self._trains = learners(cfg)
        self._latest: dict[str, Published] = {}
        self.made: dict[str, dict[int, int]] = {}
        """Role → version → the update whose result it is, where a league asks for it."""
        for roles in self._trains.values():
            self.made |= {role: {} for role in roles}
        self._seconds: dict[str, Seconds] = {}
        self._mended: dict[tuple[str, int], Published] = {}
        self._mending = asyncio.Lock()

    def latest(self, role: str) -> Published:
        """The newest weights of `role`."""
        return self._latest[role]

    async def publish(
        self, learner: str, weights: Ref, incarnation: int, step: int, serial: int = 0
    ) -> Published:
        """Publish `weights`, the result of step `step`, under the next version number of each role
        that `learner` trains; in flight, bring them to players at work.

        Returns the publication of the role that the learner is named after. LearnerLost."""
        versions = {}
        for role in self._trains[learner]:
            number = await self._cast.ledger.first.next_version(role, incarnation, step)
            versions[role] = number
        if self._cfg.schedule.in_flight:
            await self._refresh(versions, weights)

        for role, version in versions.items():
            self._latest[role] = Published(version, weights, serial)
            if self._cfg.league.match != "self":
                self.made[role][version] = step
        self._forget()
        return self._latest[learner]

    async def mend(self, role: str, lost: Published, why: str) -> Published:
        """The version of `lost` in a new parcel, after a player could not get the old one.

        LearnerLost when nobody has it. InputError for a member of the league, whose weights are a
        folder of the run."""
        member = f"{role} version {lost.version}, a member of the league"
        rule = f"the weights of {member}, are in the folder of the run"
        step = "let every node see them and go on with resume=auto, or set league.match=self"
        hold(not lost.past, rule, why, step)
        async with self._mending:  # many players miss the same
            known = self._mended.get((role, lost.version), lost)
            if known.weights is not lost.weights:
                return known

            self._say(f"{role} version {lost.version}: {why}; it is fetched from the learner")
            parcel, _ = await self._cast.learner(role).again(lost.serial)
            mended = replace(lost, weights=parcel)
            self._mended[role, lost.version] = mended
            if self._latest[role].version == lost.version:
                self._latest[role] = mended
            self._forget()
            return mended

    def note(self, role: str, seconds: Mapping[str, float]) -> None:
        """Note the seconds that a player took for a publication; the slowest of each part
        counts."""
        kept = self._seconds.setdefault(role, {})
        for part in ("sync_transfer", "sync_load"):
            if part in seconds:
                kept[f"time/{part}"] = max(kept.get(f"time/{part}", 0.0), seconds[part])

    def figures(self, role: str) -> Values:
        """`time/sync_transfer` and `time/sync_load` of the versions loaded since the last call."""
        return self._seconds.pop(role, {})

    def _forget(self) -> None:
        """Forget mended parcels that nobody may play any more: those older than the bound + 1."""
        for role, version in list(self._mended):
            oldest = self._latest[role].version - bound(self._cfg, role) - 1
            if version < oldest:
                del self._mended[role, version]

    async def _refresh(self, versions: Mapping[str, int], parcel: Ref) -> None:
        """In flight, bring new weights to players at work. A player that misses them gets them with
        its next play."""
        names = []
        calls = []
        for role, version in versions.items():
            if bound(self._cfg, role) == 0:
                continue
            crew = self._cast.players[role]
            for worker in range(crew.size):
                names.append((role, f"{crew.name}-{worker}"))
                calls.append(crew[worker].refresh(version, parcel))

        results = await asyncio.gather(*calls, return_exceptions=True)
        for (role, name), result in zip(names, results, strict=True):
            if isinstance(result, Fault):
                self._say(f"{name} missed {role} version {versions[role]}: {result}")
            elif isinstance(result, BaseException):
                raise result
            else:
                self.note(role, result)
