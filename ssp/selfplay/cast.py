"""The program as a value: every crew of a run, by name."""

from __future__ import annotations

from dataclasses import dataclass

from ssp.base.crew import Crew
from ssp.base.episode import PROPOSER


@dataclass(frozen=True)
class Cast:
    """Crews of one run. `learners` has one crew of one for each role that plays (roles that share have the same), `queues`
    one for each, and questions.

    Where questions are given, `proposers` is a crew of nobody.
    """

    proposers: Crew
    solvers: Crew
    judges: Crew
    learners: dict[str, Crew]
    queues: dict[str, Crew]
    ledger: Crew

    def players(self, role: str) -> Crew:
        """Who plays `role`."""
        return self.proposers if role == PROPOSER else self.solvers
