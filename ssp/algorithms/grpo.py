"""GRPO: the baseline of an episode is the mean of its own group (the attempts at one question).

Owns the choice of the group as the baseline. Promises what `standardise` promises. Refuses to drop groups: one without
spread gets advantage 0, and whether it enters the batch is the caller's decision.
"""

from __future__ import annotations

from torch import Tensor

from ssp.algorithms.base import Algorithm, RewardBatch, over_tokens, standardise


class Grpo(Algorithm):
    """A = (r - group mean) / (group std + 1e-6), the same on every model token of the episode.

    Source: Shao et al. 2024 (arXiv 2402.03300), outcome supervision.
    """

    name = "grpo"

    def advantages(self, batch: RewardBatch) -> Tensor:
        """float32 [N, T]; see `Algorithm.advantages`."""
        return over_tokens(standardise(batch.rewards, batch.valid, batch.groups), batch.mask)
