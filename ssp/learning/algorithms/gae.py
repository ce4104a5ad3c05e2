"""Generalised advantage estimation: the baseline of a token is a critic's value."""

from __future__ import annotations

import torch
from torch import Tensor

from ssp.learning.algorithms.base import Algorithm, RewardBatch, required, token_rewards


class Gae(Algorithm):
    """A_t = d_t + gamma lam A_{t+1}, d_t = r_t + gamma V_{t+1} - V_t, t over a row's model tokens; V = 0 after the last.

    Source: Schulman et al. 2016 (arXiv 1506.02438), eq. 16. `values[:, t]` is the value before token t is written.
    """

    name = "gae"
    needs_values = True

    def advantages(self, batch: RewardBatch) -> Tensor:
        """float32 [N, T]; see `Algorithm.advantages`."""
        values, rewards = required(batch, "values", self.name).double(), token_rewards(batch)
        on = batch.mask.bool() & batch.valid.bool()[:, None]
        out = torch.zeros_like(rewards)
        later = next_value = rewards.new_zeros(len(rewards))
        for t in reversed(range(rewards.shape[1])):
            here = rewards[:, t] + self.gamma * next_value - values[:, t] + self.gamma * self.lam * later
            out[:, t] = torch.where(on[:, t], here, 0.0)
            later = torch.where(on[:, t], here, later)
            next_value = torch.where(on[:, t], values[:, t], next_value)
        return out.float()
