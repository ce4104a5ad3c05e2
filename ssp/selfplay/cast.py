"""The program as a value: every crew of a run, by name.

Owns the list of parts that the coordinator is wired to. Promises that whoever builds a `Cast` (one process or a
cluster) gives the coordinator the same interface. Refuses to start anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from ssp.config.schema import Config
from ssp.episode import PROPOSER
from ssp.selfplay.crew import Crew


@dataclass(frozen=True)
class Cast:
    """Crews of one run. `learners` has one crew of one for each role that plays, `queues` one for each, and questions.

    Where questions are given, `proposers` is a crew of nobody.
    """

    proposers: Crew
    solvers: Crew
    judges: Crew
    learners: dict[str, Crew]
    queues: dict[str, Crew]
    ledger: Crew


def proposers(cfg: Config) -> int:
    """How many proposers play: none where questions are given."""
    return cfg.placement.proposers if PROPOSER in cfg.roles else 0


def queue_names(cfg: Config) -> tuple[str, ...]:
    """Every queue of a run: questions, and one of batches a role."""
    return ("questions", *cfg.roles)
