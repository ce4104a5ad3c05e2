"""REINFORCE with a batch-normalised reward: the baseline of an episode is the batch.

Owns the choice of the batch, cut by grading version when that is given, as the baseline (law 4).
Promises what `standardise` promises. Refuses to look at groups.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ssp.algorithms.base import Algorithm, RewardBatch, episode_rewards, optional, over_tokens, standardise


class Reinforce(Algorithm):
    """A = (r - batch mean) / (batch std + 1e-6), the same on every model token of the episode.

    Source: Williams 1992 (REINFORCE with a baseline), advantages whitened over the batch.
    A batch whose rows were graded by several versions (`graders`) is normalised within each of them.
    """

    name = "reinforce"

    def advantages(self, batch: RewardBatch) -> Tensor:
        """float32 [N, T]; see `Algorithm.advantages`."""
        graders = optional(batch, "graders")
        baseline = torch.zeros_like(batch.groups) if graders is None else graders
        return over_tokens(standardise(episode_rewards(batch), batch.valid, baseline), batch.mask)
