"""REINFORCE++: advantages a token, standardised over all model tokens of the batch.

Owns both forms of it. Promises that observations neither cut a return nor enter the mean (verl's loop sets the return to
0 at every masked position, so that nothing before an observation hears of the outcome). Refuses to use a critic.
"""

from __future__ import annotations

from torch import Tensor

from ssp.algorithms.base import (
    Algorithm,
    RewardBatch,
    episode_rewards,
    optional,
    over_tokens,
    returns,
    standardise,
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
        return whiten(returns(batch, self.gamma), on, optional(batch, "graders"))


class ReinforcePPBaseline(Algorithm):
    """A_t = (a - mean) / (std + 1e-6) over the batch's model tokens, a = r - group mean (a group of one: mean 0).

    Source: Hu et al. 2025 (arXiv 2501.03262), the variant for several answers a question.
    """

    name = "reinforce_pp_baseline"

    def advantages(self, batch: RewardBatch) -> Tensor:
        """float32 [N, T]; see `Algorithm.advantages`."""
        on = batch.mask.bool() & batch.valid.bool()[:, None]
        centred = standardise(episode_rewards(batch), batch.valid, batch.groups, spread=False, lone=True)
        return whiten(over_tokens(centred, batch.mask), on, optional(batch, "graders"))
