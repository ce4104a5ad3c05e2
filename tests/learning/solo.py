"""A learner of one role, spoken to as if there were no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ssp.config.role import RoleConfig
from ssp.learning import kl
from ssp.learning.backends.ranks import SOLO, Ranks
from ssp.learning.critic import Critic
from ssp.learning.learner import PolicyLearner


def solo_critic(model_dir: Path, config: RoleConfig) -> Critic:
    return Critic(model_dir, config.critic, config.learner, SOLO)


class SoloLearner:
    """`Learner` of the role `solver`, and the parts that tests look into."""

    def __init__(
        self, model_dir: str | Path, config: RoleConfig, protocol: str = "", steps: int = 0, ranks: Ranks = SOLO
    ) -> None:
        self.inner = PolicyLearner(model_dir, {"solver": config}, protocol, steps, ranks)
        self.objective = self.inner.objectives["solver"]
        self.model = self.inner.policy.model
        self.optimizer = self.inner.backend.optimizer
        self.algorithm, self.divergence = self.objective.algorithm, self.objective.divergence
        self.critic = self.objective.critic
        self.weights, self.protocol = self.inner.weights, self.inner.protocol
        self.save, self.load = self.inner.save, self.inner.load

    @property
    def step(self) -> int:
        return self.inner.step

    def update(self, batch):
        return self.inner.update({"solver": batch})["solver"]


def timeless(figures):
    """Without those that a clock decides."""
    return {name: value for name, value in figures.items() if name not in ("seconds", "mfu")}


def gradients(learner, batch):
    """The gradient of one update before clipping, by name, and its figures; the optimizer does not step."""
    learner.objective.config.learner.max_grad_norm = 1e9
    learner.optimizer.step = lambda: None
    figures = learner.update(batch)
    return {n: p.grad.clone() for n, p in learner.model.named_parameters() if p.grad is not None}, figures


def goes_on(folder, model_dir, config, make_batch, first=2, later=3):
    """A learner that was saved to `folder` after `first` updates, and the one that was loaded from there: bit for bit
    alike through `later` more."""
    learner, resumed = SoloLearner(model_dir, config), SoloLearner(model_dir, config)
    for seed in range(first):
        learner.update(make_batch(seed=seed))
    learner.save(folder, {"role": "solver"})
    resumed.load(folder)
    for seed in range(first, first + later):
        batch = make_batch(seed=seed, noise=0.1)
        assert timeless(learner.update(batch)) == timeless(resumed.update(batch))
    ours, theirs = learner.weights(), resumed.weights()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    return learner, resumed


def compare(kind):
    """The KL `kind` as `score` calls it."""

    def run(policy, reference, sampled, behaviour):
        if kind in kl.WHOLE:
            return kl.get(kind)(policy, reference, sampled, behaviour, 3)
        return kl.get(kind)(kl.at(policy, sampled), kl.at(reference, sampled))

    return run
