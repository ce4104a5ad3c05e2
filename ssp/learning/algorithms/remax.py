"""ReMax: the baseline of an episode is what the greedy answer to its question earned."""

from __future__ import annotations

import torch
from torch import Tensor

from ssp.learning.algorithms.base import Algorithm, RewardBatch, required, returns, token_rewards


class Remax(Algorithm):
    """A_t = G_t - b, G_t the discounted return over policy tokens, b = `baseline_rewards`.

    Source: Li et al. 2024 (arXiv 2310.10505).
    """

    name = "remax"

    def advantages(self, batch: RewardBatch) -> Tensor:
        """float32 [N, T]; see `Algorithm.advantages`."""
        baseline = required(batch, "baseline_rewards", self.name).double()
        on = batch.mask.bool() & (batch.valid.bool() & ~torch.isnan(baseline))[:, None]
        earned = returns(token_rewards(batch), batch.mask, self.gamma)
        return torch.where(on, earned - baseline[:, None], 0.0).float()
