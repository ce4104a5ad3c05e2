"""RLOO: the baseline of an episode is the mean of the others in its group."""

from __future__ import annotations

import torch
from torch import Tensor

from ssp.learning.algorithms.base import Algorithm, RewardBatch, episode_rewards, over_tokens, standardise


class Rloo(Algorithm):
    """A_i = r_i - mean of the group's other rewards = (r_i - group mean) n / (n - 1).

    Source: Ahmadian et al. 2024 (arXiv 2402.14740), after Kool et al. 2019.
    """

    name = "rloo"

    def advantages(self, batch: RewardBatch) -> Tensor:
        """float32 [N, T]; see `Algorithm.advantages`."""
        scored = batch.valid.bool()
        same = (batch.groups[:, None] == batch.groups[None, :]) & scored[None, :]
        n = same.sum(dim=1).double()
        centred = standardise(episode_rewards(batch), scored, batch.groups, spread=False)
        return over_tokens(torch.where(n > 1, centred * n / (n - 1).clamp(min=1), 0.0), batch.mask)
