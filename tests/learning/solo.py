"""A learner of one role, spoken to as if there were no others."""

from __future__ import annotations

from pathlib import Path

from ssp.config.role import RoleConfig
from ssp.learning.backends.ranks import SOLO, Ranks
from ssp.learning.critic import Critic
from ssp.learning.learner import Learner
from ssp.learning.memory import Memory


def solo_critic(model_dir: Path, config: RoleConfig) -> Critic:
    """The critic of a role in one process."""
    learner = config.learner
    return Critic(model_dir, config.critic, learner, SOLO, Memory(learner.token_budget, learner.packing))


class SoloLearner:
    """`Learner` of the role `solver`, and the parts that tests look into."""

    def __init__(
        self, model_dir: str | Path, config: RoleConfig, protocol: str = "", steps: int = 0, ranks: Ranks = SOLO
    ) -> None:
        self.inner = Learner(model_dir, {"solver": config}, protocol, steps, ranks)
        self.objective = self.inner.objectives["solver"]
        self.model = self.inner.policy.model
        self.optimizer = self.inner.backend.optimizer
        self.algorithm, self.divergence = self.objective.algorithm, self.objective.divergence
        self.critic = self.objective.critic
        self.weights, self.save, self.load, self.protocol = (
            self.inner.weights,
            self.inner.save,
            self.inner.load,
            self.inner.protocol,
        )

    @property
    def step(self) -> int:
        return self.inner.step

    def update(self, batch):
        return self.inner.update({"solver": batch})["solver"]
