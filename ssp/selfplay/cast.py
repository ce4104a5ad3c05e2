"""The program as a value: every crew of a run, by name.

Owns the list of parts that the coordinator is wired to. Promises that whoever builds a `Cast` (one process or a
cluster) gives the coordinator the same interface. Refuses to start anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from ssp.selfplay.crew import Crew


@dataclass(frozen=True)
class Cast:
    """Crews of one run. `queues` has questions, proposer, solver; `learners` has one crew of one a role."""

    proposers: Crew
    solvers: Crew
    judges: Crew
    learners: dict[str, Crew]
    queues: dict[str, Crew]
    ledger: Crew

    def players(self, role: str) -> Crew:
        """The crew that plays `role`."""
        return self.proposers if role == "proposer" else self.solvers
