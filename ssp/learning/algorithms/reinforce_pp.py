"""REINFORCE++: advantages a token, standardised over all model tokens of the batch."""

from __future__ import annotations

import torch
from torch import Tensor

from ssp.learning.algorithms.base import (
    Algorithm,
    RewardBatch,
    ends,
    episode_rewards,
    optional,
    returns,
    standardise,
    token_rewards,
    whiten,
)


class ReinforcePP(Algorithm):
    """A_t = (G_t - mean) / (std + 1e-6) over the batch's model tokens, G_t the discounted return over policy tokens.

    Source: Hu et al. 2025 (arXiv 2501.03262); name and gamma as in verl's `reinforce_plus_plus`.
    """

    name = "reinforce_pp"

    def advantages(self, batch: RewardBatch) -> Tensor:
        """float32 [N, T]; see `Algorithm.advantages`."""
        on = batch.mask.bool() & batch.valid.bool()[:, None]
        return whiten(returns(token_rewards(batch), batch.mask, self.gamma), on, optional(batch, "graders"))


class ReinforcePPBaseline(Algorithm):
    """A_t = (G_t - mean) / (std + 1e-6) over the batch's model tokens, G_t the discounted return of token rewards of which
    the episode's last has the group's mean of episode rewards taken off (a group of one: mean 0).

    With gamma 1 and no rewards but the outcome, G_t is r - group mean on every token.
    Source: Hu et al. 2025 (arXiv 2501.03262), the variant for several answers a question; token rewards as in OpenRLHF's.
    """

    name = "reinforce_pp_baseline"

    def advantages(self, batch: RewardBatch) -> Tensor:
        """float32 [N, T]; see `Algorithm.advantages`."""
        on = batch.mask.bool() & batch.valid.bool()[:, None]
        earned = episode_rewards(batch)
        centred = standardise(earned, batch.valid, batch.groups, spread=False, lone=True)
        rewards = token_rewards(batch) - torch.where(ends(on), (earned - centred)[:, None], 0.0)
        return whiten(returns(rewards, batch.mask, self.gamma), on, optional(batch, "graders"))
