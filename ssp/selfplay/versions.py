"""Published weights: one number a publication, never used twice (design: Version).

Owns the newest version of each role and where its weights lie. Promises strictly increasing numbers over the life of a
run folder, because the ledger hands them out. Refuses to copy weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from ssp.selfplay.crew import Crew
from ssp.selfplay.records import Ref


@dataclass(frozen=True)
class Published:
    """Weights of one role at one version."""

    version: int
    weights: Ref


class WeightStore:
    """The newest publication of each role."""

    def __init__(self, ledger: Crew) -> None:
        self._ledger = ledger
        self._latest: dict[str, Published] = {}

    def latest(self, role: str) -> Published:
        """The newest weights of `role`."""
        return self._latest[role]

    async def publish(self, role: str, weights: Ref, incarnation: int, step: int) -> Published:
        """Give `weights`, the result of learner step `step` in this incarnation, the next version number of `role`."""
        version = await self._ledger.call(0, "next_version", role, incarnation, step)
        self._latest[role] = Published(version, weights)
        return self._latest[role]
