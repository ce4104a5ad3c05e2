"""What happens when an actor's process ends, by class of actor: who starts it again, how often, and
what is lost (docs/faults.md)."""

from dataclasses import dataclass
from typing import Any

from ssp.config.schema import Config

RAY, US = "Ray", "us"


@dataclass(frozen=True)
class RestartPolicy:
    """`by`: who starts an actor again; `lost`: what is lost with its process; `then`: what happens
    next."""

    by: str
    lost: str
    then: str

    def told(self, used: int, budget: int, alive: bool = True) -> str:
        """What happens next to an actor whose process has ended `used` times and may end `budget`
        times. `alive`: Ray starts it again."""
        if self.by == US:
            often = f"it is started again at its next call, at most {budget} times"
            return f"{often}; lost: {self.lost}; {self.then}"
        if not alive:
            return f"it does not start again: {budget} restarts are used up"
        return f"Ray starts it again, {used} of {budget} times; lost: {self.lost}; {self.then}"


_PLAYER = RestartPolicy(
    RAY, "the block that it plays", "its episodes are void, and it is played again under new ids"
)
_JUDGE = RestartPolicy(
    RAY, "nothing: its calls are pure", "the call is made again, on the next judge"
)
_SHARD = RestartPolicy(
    RAY, "requests under way", "players ask another replica, or wait until retriever.timeout"
)
_ENCODER = RestartPolicy(
    RAY, "requests under way", "players ask another encoder, or wait until retriever.timeout"
)
_LEDGER = RestartPolicy(RAY, "nothing: its file is on the disk", "the call is made again")
_BACK = "the run goes back to its last checkpoint"
_TRAINED = "weights and optimizer since the last save"
_LEARNER = RestartPolicy(US, _TRAINED, _BACK)
_SIMULATED_LEARNER = RestartPolicy(US, "its updates since the last save", _BACK)
_RANK = RestartPolicy(US, _TRAINED, f"all ranks form a new group, and {_BACK}")

POLICIES = {
    "PlayerActor": _PLAYER,
    "PairActor": _PLAYER,
    "JudgeActor": _JUDGE,
    "ShardActor": _SHARD,
    "EncoderActor": _ENCODER,
    "LedgerActor": _LEDGER,
    "LearnerActor": _LEARNER,
    "SimulatedLearnerActor": _SIMULATED_LEARNER,
    "RankActor": _RANK,
}
"""All classes of actors, by name."""


def options(cfg: Config, actor: Any) -> dict[str, int]:
    """Ray's options of an actor class. Ray repeats no lost call: crews do, and who searches."""
    policy = POLICIES[actor.__ray_metadata__.class_name]
    restarts = cfg.placement.restarts if policy.by == RAY else 0
    return {"max_restarts": restarts, "max_task_retries": 0}
