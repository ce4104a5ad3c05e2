"""From a batch to one advantage a token: the estimator, the critic's targets, and a KL that counts as reward."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ssp.learning.algorithms.base import Algorithm, over_tokens, token_rewards, whiten
from ssp.learning.batch import Batch


@dataclass(frozen=True)
class Estimate:
    """`advantages` [N, T]; `targets` [N, T]: what the critic's values should have been, for estimators that have one."""

    advantages: Tensor
    targets: Tensor | None = None


def estimate(algorithm: Algorithm, batch: Batch, penalty: Tensor | None = None, place: str = "loss") -> Estimate:
    """The advantages of `batch`. `penalty` [N, T]: coefficient times KL of each token, without gradient.

    `place` reward: r_t ← r_t - penalty_t before the estimate (InstructGPT, Ouyang et al. 2022); advantage: A_t ← A_t -
    penalty_t after it (EMA-PG's apply_kl_after_advantage); future: A_t ← A_t - the sum of penalty_t and all later ones of
    the row (its use_future_kl_as_reward); loss: the penalty is not looked at. An estimator with a critic is whitened over
    the batch's model tokens in between, as Search-R1 and verl do; its targets are not.
    """
    trained = batch.mask & batch.valid[:, None]
    if penalty is not None and place == "reward":
        batch = replace(batch, token_rewards=token_rewards(batch) - penalty)
    advantages, targets = _over_rows(algorithm, batch), None
    if algorithm.needs_values and batch.values is not None:
        targets = advantages + batch.values
        advantages = whiten(advantages, trained, batch.graders)
    if penalty is not None and place == "future":
        penalty = torch.where(trained, penalty, 0.0).flip(1).cumsum(1).flip(1)
    if penalty is not None and place in ("advantage", "future"):
        advantages = torch.where(trained, advantages - penalty, 0.0).float()
    return Estimate(advantages, targets)


def _over_rows(algorithm: Algorithm, batch: Batch) -> Tensor:
    """Advantages [N, T] of the episodes' first rows, put on their continuations too."""
    if batch.source is None:
        return algorithm.advantages(batch)
    first = batch.episodes()
    given = algorithm.advantages(first)
    an_episode = given.gather(1, first.mask.int().argmax(dim=1, keepdim=True)).squeeze(1)
    return torch.cat([given, over_tokens(an_episode[batch.source[len(first) :]], batch.mask[len(first) :])])
