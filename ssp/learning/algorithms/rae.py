"""Role-conditioned advantages: the baseline is the running mean of what this role has earned so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ssp.base.errors import InvariantError
from ssp.learning.algorithms.base import Algorithm, RewardBatch, episode_rewards, over_tokens

DECAY = 0.95


class Rae(Algorithm):
    """A_i = r_i - b, then b = 0.95 b + 0.05 r_i, through the valid rows in batch order; b is 0 before the first.

    Source: SPIRAL, Liu et al. 2025 (arXiv 2506.24119), role-conditioned advantage estimation, with its decay.
    Stateful: each call moves the baseline.
    """

    name = "rae"

    def __init__(self, gamma: float = 1.0, lam: float = 1.0) -> None:
        super().__init__(gamma, lam)
        self._baseline = 0.0

    def advantages(self, batch: RewardBatch) -> Tensor:
        """float32 [N, T]; see `Algorithm.advantages`."""
        rewards = episode_rewards(batch)
        out = torch.zeros_like(rewards)
        for row in torch.nonzero(batch.valid).squeeze(1).tolist():
            reward = float(rewards[row])
            out[row] = reward - self._baseline
            self._baseline = DECAY * self._baseline + (1 - DECAY) * reward
        return over_tokens(out, batch.mask)

    def state_dict(self) -> dict[str, Any]:
        """The baseline."""
        return {"baseline": self._baseline}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`; InvariantError for anything else."""
        if set(state) != {"baseline"} or not isinstance(state["baseline"], float):
            raise InvariantError(f"rae keeps one baseline but got {dict(state)}")
        self._baseline = state["baseline"]
