"""What happens when an actor's process ends, by class: who starts it again, how often, what is lost.

Owns the restart policies, all of them. Promises that every actor class has one (a test counts) and that docs/faults.md shows
these. Refuses to start anything: those who make actors ask here for Ray's options.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ssp.config.schema import Config

RAY, US = "Ray", "us"


@dataclass(frozen=True)
class Policy:
    """`by` whom an actor is started again; what is `lost` with its process; what happens `then`. `idempotent`: Ray and the
    crew repeat a lost call."""

    by: str
    lost: str
    then: str
    idempotent: bool = False


_PLAYER = Policy(RAY, "the block that it plays", "its episodes are void, and it is played again under new ids")
POLICIES = {
    **dict.fromkeys(("ProposerActor", "SolverActor", "PairActor"), _PLAYER),
    "JudgeActor": Policy(RAY, "nothing: its calls are pure", "the call is made again, on the next judge"),
    "ShardActor": Policy(RAY, "requests under way", "players ask another replica, or wait until retriever.timeout"),
    "EncoderActor": Policy(RAY, "requests under way", "players ask another encoder, or wait until retriever.timeout"),
    "QueueActor": Policy(RAY, "its references to blocks", "a sender without acknowledgement puts its block again"),
    "LedgerActor": Policy(RAY, "nothing: its file is on the disk", "the call is made again", idempotent=True),
    "LearnerActor": Policy(US, "weights and optimizer since the last save", "the run goes back to its last checkpoint"),
    "SimulatedLearnerActor": Policy(US, "its updates since the last save", "the run goes back to its last checkpoint"),
    "RankActor": Policy(
        US,
        "weights and optimizer since the last save",
        "all ranks form a new group, and the run goes back to its last checkpoint",
    ),
}
"""By class of actor."""


@dataclass(frozen=True)
class Restart:
    """A policy with a run's budget."""

    policy: Policy
    budget: int

    def told(self, used: int, alive: bool = True) -> str:
        """What happens next to an actor that was restarted `used` times, the restart under way included."""
        if self.policy.by == US:
            often = f"it is started again at its next call, at most {self.budget} times"
            return f"{often}; lost: {self.policy.lost}; {self.policy.then}"
        if used >= self.budget and not alive:
            return f"it may not start again: restart {used} of {self.budget} (placement.restarts)"
        return f"Ray starts it again, {used} of {self.budget} times; lost: {self.policy.lost}; {self.policy.then}"


def of(cfg: Config) -> dict[str, Restart]:
    """Every kind's policy in a run."""
    return {kind: Restart(policy, cfg.placement.restarts) for kind, policy in POLICIES.items()}


def options(cfg: Config, actor: Any) -> dict[str, int]:
    """Ray's options of an actor class: restarts, and calls that Ray makes again."""
    policy = POLICIES[actor.__ray_metadata__.class_name]
    return {
        "max_restarts": cfg.placement.restarts if policy.by == RAY else 0,
        "max_task_retries": -1 if policy.idempotent else 0,
    }
