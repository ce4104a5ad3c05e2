"""The program as a value: every crew of a run, by name."""

from dataclasses import dataclass
from typing import Any

from ssp.base.crew import Around, Crew, CrewCall
from ssp.base.errors import Fault, SspError
from ssp.record.ledger.writer import LedgerWriter
from ssp.selfplay.crews.seams import Judges, Learners, Players

GONE = "payload_lost"
"""Cause of a call that did not begin, because its payload is gone with a node."""


class LearnerLost(SspError):
    """A learner died and its state is gone: the run goes back to its last checkpoint."""


@dataclass(frozen=True)
class Cast:
    """Crews of one run; players and learners by role. Roles that share a policy have the same
    learner. A learner is a crew of one, as the ledger is."""

    players: dict[str, Crew[Players]]
    judges: Crew[Judges]
    learners: dict[str, Crew[Learners]]
    ledger: Crew[LedgerWriter]

    def learner(self, role: str) -> Learners:
        """The learner of `role`. Its state dies with it, so a fault of it is a LearnerLost."""
        return _Mortal(self.learners[role], role).first


class _Mortal(Around[Learners]):
    def __init__(self, inner: Crew[Learners], role: str) -> None:
        super().__init__(inner)
        self._role = role

    async def perform(self, worker: int, call: CrewCall, *args: Any) -> Any:
        try:
            return await self.inner.perform(worker, call, *args)
        except Fault as fault:
            raise LearnerLost(f"{self._role} learner: {fault}") from fault
