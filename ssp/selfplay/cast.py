"""The program as a value: every crew of a run, by name."""

from __future__ import annotations

from dataclasses import dataclass

from ssp.base.crew import Crew
from ssp.base.episode import PROPOSER
from ssp.config.schema import Config


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


def proposers(cfg: Config) -> int:
    """How many proposers play: none where questions are given."""
    return cfg.placement.proposers if PROPOSER in cfg.roles else 0


def learners(cfg: Config) -> dict[str, tuple[str, ...]]:
    """Every learner of a run, by the role that it is called after: the roles that it trains, in the order of their steps.

    Roles with policy=shared have one, called after the last of them, the solver.
    """
    shared = tuple(role for role in cfg.roles if cfg.block(role).policy == "shared")
    own: dict[str, tuple[str, ...]] = {role: (role,) for role in cfg.roles if role not in shared}
    return {**own, shared[-1]: shared} if shared else own


def at_once(cfg: Config, role: str) -> int:
    """Blocks of episodes that one player of `role` plays at a time.

    More than one only in flight: an engine has the weights of one version, and elsewhere each block waits for its own. Then
    the blocks of all rounds under way, and of an evaluation, share the engine, which the last episodes of one alone would
    leave nearly empty (docs/plan.md).
    """
    bound: int = getattr(cfg.schedule.max_staleness, role)
    return bound + 2 if cfg.schedule.in_flight and bound > 0 else 1


def ranks(cfg: Config, learner: str) -> int:
    """Processes of a learner; one that only waits is one, whatever its ranks."""
    own = cfg.block(learner).learner
    return 1 if own.kind == "simulated" else own.ranks
