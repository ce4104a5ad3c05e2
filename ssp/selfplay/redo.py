"""A learner that died comes back alone: by its role's last checkpoint, and what it had learned since, learned again.

Owns, for each learner, its last checkpoint and the batches that it has trained since, as references, up to queue.bytes.
Promises that what comes back was made of the same batches in the same order (the same weights bit for bit, where the
backend gives that), under the version numbers that it had: in the lineage of the weights every episode still contributes
once (law 3), the ledger takes nothing back, and the other learner goes on. Where that cannot be (too many bytes, a lost
block, another death meanwhile) the LearnerLost stays one, which takes the run back to its last checkpoint.
Refuses to know what a batch is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ssp.config.schema import Config
from ssp.errors import SspError
from ssp.selfplay.cast import Cast
from ssp.selfplay.lost import LearnerLost, call_learner
from ssp.selfplay.records import PlanItem, Ref
from ssp.selfplay.versions import WeightStore

T = TypeVar("T")

Plans = Mapping[str, Sequence[PlanItem]]
Learned = tuple[Ref, dict[str, dict[str, float]], int]
"""The parcel of an update, its figures by role, and its serial."""


@dataclass(frozen=True)
class _Update:
    """One update, and the versions of its publication by role."""

    plans: Plans
    blocks: tuple[Ref, ...]
    versions: dict[str, int]


@dataclass
class _Log:
    """A checkpoint with its versions, and all updates since; None where they are too many to be kept."""

    folder: str
    versions: dict[str, int]
    updates: list[_Update] | None = field(default_factory=list)
    nbytes: int = 0


class Redo:
    """Work with learners that survives a death of theirs; `say`: a line for the user."""

    def __init__(self, cfg: Config, cast: Cast, store: WeightStore, say: Callable[[str], None]) -> None:
        self._cfg, self._cast, self._store, self._say = cfg, cast, store, say
        self._logs: dict[str, _Log] = {}
        self._deaths = 0
        self._told = False

    def begin(self, learner: str, folder: str) -> None:
        """What `learner` has now is in the checkpoint `folder` ("" = nowhere)."""
        self._logs[learner] = _Log(folder, self._versions(learner))

    def learned(self, learner: str, plans: Plans, blocks: Sequence[Ref], nbytes: int) -> None:
        """Its newest version was made by this update, of payloads of so many bytes."""
        log = self._logs.get(learner)
        if log is None or log.updates is None:
            return
        log.nbytes += nbytes
        if log.nbytes <= self._cfg.queue.bytes:
            log.updates.append(_Update(plans, tuple(blocks), self._versions(learner)))
            return
        log.updates = None
        if not self._told:
            self._told = True
            self._say(
                f"the {learner} learner's batches since its last checkpoint pass queue.bytes={self._cfg.queue.bytes}: "
                "should it die before the next one, the run goes back (save.every lower keeps fewer)"
            )

    def count(self, lost: LearnerLost) -> None:
        """One more death. SspError when it was one too many."""
        self._deaths += 1
        if self._deaths > self._cfg.placement.restarts:
            raise SspError(f"learners died {self._deaths} times: giving up") from lost

    async def surely(self, learner: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do `work`, which may call `learner`; once more after it died and came back. LearnerLost when it did not."""
        try:
            return await work()
        except LearnerLost as lost:
            log = self._logs.get(learner)
            if log is None or not log.folder or log.updates is None or lost.payload:  # which a new one lacks too
                raise
            self.count(lost)
            self._say(f"{lost}; it alone goes back to its last checkpoint, and learns {len(log.updates)} batches again")
            await self._again(learner, log.folder, log.versions, log.updates)
        return await work()

    async def update(self, learner: str, plans: Plans, blocks: Sequence[Ref]) -> Learned:
        """One update of `learner`. LearnerLost."""
        if len(self._store.courier.trains[learner]) > 1:
            weights, stats = await call_learner(self._cast, learner, "update_all", plans, *blocks)
        else:
            weights, found = await call_learner(self._cast, learner, "update", plans[learner], *blocks)
            stats = {learner: found}
        (serial,) = {int(found.pop("serial")) for found in stats.values()}
        return weights, stats, serial

    async def _again(self, learner: str, folder: str, versions: Mapping[str, int], updates: Sequence[_Update]) -> None:
        """Bring the new process where the old one was; players that still want weights of that one find these."""
        async with self._store.renewing[learner]:
            await self._store.courier.prepare(learner)
            await call_learner(self._cast, learner, "load", folder)
            parcel, figures = await call_learner(self._cast, learner, "weights")
            self._store.renew(versions, parcel, int(figures["serial"]), first=True)
            for done in updates:
                parcel, _, serial = await self.update(learner, done.plans, done.blocks)
                self._store.renew(done.versions, parcel, serial)

    def _versions(self, learner: str) -> dict[str, int]:
        return {role: self._store.latest(role).version for role in self._store.courier.trains[learner]}
