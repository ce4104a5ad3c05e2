"""Published weights: one number a publication, never used twice (design: Version).

Owns the newest version of each role and where its weights lie. Promises strictly increasing numbers over the life of a
run folder, because the ledger hands them out, and that a version is the newest only once it was brought on its way.
Refuses to copy weights.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from ssp.base.crew import Crew
from ssp.base.errors import InputError
from ssp.record.ledger.writer import LedgerWriter
from ssp.selfplay.records import Game, Ref
from ssp.selfplay.sync import WeightSync

ANCHORS = 2**30
"""Versions of anchors count from here on: players tell weights apart by version, and in flight take newer ones only."""


@dataclass(frozen=True)
class Published:
    """Weights of one role at one version: a parcel, and its number at the learner that packed it. `past`: of a version
    that is not the newest, its mark in the names of files that are played with it."""

    version: int
    weights: Ref
    serial: int = 0
    past: str = ""


Match = tuple[Published, list[Game]]
"""Weights, and the games in which they play."""


class WeightStore:
    """The newest publication of each role."""

    def __init__(self, ledger: Crew[LedgerWriter], sync: WeightSync) -> None:
        self._ledger, self.sync = ledger.first, sync
        self._latest: dict[str, Published] = {}
        self.made: dict[str, dict[int, int]] = {role: {} for roles in sync.trains.values() for role in roles}
        """Role → version → the update whose result it is."""
        self._mended: dict[tuple[str, int], Published] = {}
        self._mending = {learner: asyncio.Lock() for learner in sync.trains}

    def latest(self, role: str) -> Published:
        """The newest weights of `role`."""
        return self._latest[role]

    async def publish(self, learner: str, weights: Ref, incarnation: int, step: int, serial: int = 0) -> Published:
        """Give `weights`, the result of step `step` of `learner` in this incarnation, the next version number of each role
        that it trains; those of the role that it is called after."""
        versions = {
            role: await self._ledger.next_version(role, incarnation, step) for role in self.sync.trains[learner]
        }
        weights = await self.sync.deliver(learner, versions, weights, serial)
        self._latest |= {role: Published(version, weights, serial) for role, version in versions.items()}
        for role, version in versions.items():
            self.made[role][version] = step
        self._forget()
        return self._latest[learner]

    async def mend(self, role: str, lost: Published, why: str) -> Published:
        """The same version in another parcel, after a player found that of `lost` gone. LearnerLost when nobody has it,
        InputError for a member of the league, which is a folder of the run."""
        if lost.past:
            rule = f"the weights of {role} version {lost.version}, a member of the league, are in the folder of the run"
            raise InputError(rule, why, "let every node see them and go on with resume=auto, or set league.match=self")
        learner = next(name for name, roles in self.sync.trains.items() if role in roles)
        async with self._mending[learner]:  # many players miss the same
            known = self._mended.get((role, lost.version), lost)
            if known.weights is lost.weights:
                known = replace(lost, weights=await self.sync.again(role, lost.version, lost.serial, why))
                self._mended[role, lost.version] = known
                if self._latest[role].version == lost.version:
                    self._latest[role] = known
                self._forget()
            return known

    def _forget(self) -> None:
        """Parcels of versions that nobody plays any more."""
        oldest = {role: latest.version - self.sync.spare(role) for role, latest in self._latest.items()}
        self._mended = {key: kept for key, kept in self._mended.items() if key[1] > oldest[key[0]]}
