"""What happens when an actor's process ends, by class: who starts it again, how often, what is lost
(docs/faults.md)."""

from dataclasses import dataclass
from typing import Any

from ssp.config.schema import Config

RAY, US = "Ray", "us"


@dataclass(frozen=True)
class RestartPolicy:
    """`by` whom an actor is started again; what is `lost` with its process; what happens `then`."""

    by: str
    lost: str
    then: str

    def told(self, used: int, budget: int, alive: bool = True) -> str:
        """What happens next to an actor whose process ended `used` times, `budget` of which are
        made up for."""
        if self.by == US:
            often = f"it is started again at its next call, at most {budget} times"
            return f"{often}; lost: {self.lost}; {self.then}"
        if not alive:
            return f"it does not start again: placement.restarts={budget} is used up"
        return f"Ray starts it again, {used} of {budget} times; lost: {self.lost}; {self.then}"


_PLAYER = RestartPolicy(
    RAY, "the block that it plays", "its episodes are void, and it is played again under new ids"
)
_BACK = "the run goes back to its last checkpoint"
POLICIES = {
    **dict.fromkeys(("PlayerActor", "PairActor"), _PLAYER),
    "JudgeActor": RestartPolicy(
        RAY, "nothing: its calls are pure", "the call is made again, on the next judge"
    ),
    "ShardActor": RestartPolicy(
        RAY, "requests under way", "players ask another replica, or wait until retriever.timeout"
    ),
    "EncoderActor": RestartPolicy(
        RAY, "requests under way", "players ask another encoder, or wait until retriever.timeout"
    ),
    "LedgerActor": RestartPolicy(RAY, "nothing: its file is on the disk", "the call is made again"),
    "LearnerActor": RestartPolicy(US, "weights and optimizer since the last save", _BACK),
    "SimulatedLearnerActor": RestartPolicy(US, "its updates since the last save", _BACK),
    "RankActor": RestartPolicy(
        US, "weights and optimizer since the last save", f"all ranks form a new group, and {_BACK}"
    ),
}
"""By class of actor: all of them (a test counts)."""


def options(cfg: Config, actor: Any) -> dict[str, int]:
    """Ray's options of an actor class. Lost calls are made again by those who may: crews, and who
    searches."""
    policy = POLICIES[actor.__ray_metadata__.class_name]
    return {
        "max_restarts": cfg.placement.restarts if policy.by == RAY else 0,
        "max_task_retries": 0,
    }
