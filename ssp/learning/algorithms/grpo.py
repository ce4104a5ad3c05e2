"""GRPO and Dr. GRPO: the baseline of an episode is the mean of its own group (the attempts at one question)."""

from __future__ import annotations

from torch import Tensor

from ssp.learning.algorithms.base import Algorithm, RewardBatch, episode_rewards, over_tokens, standardise


class Grpo(Algorithm):
    """A = (r - group mean) / (group std + 1e-6), the same on every model token of the episode.

    Source: Shao et al. 2024 (arXiv 2402.03300), section 4.1.2, outcome supervision, with the sample standard deviation,
    the epsilon and the rule for a group of one (mean 0, std 1) of verl, which Search-R1 and Search Self-play train with.
    """

    name = "grpo"
    spread = True

    def advantages(self, batch: RewardBatch) -> Tensor:
        """float32 [N, T]; see `Algorithm.advantages`."""
        rewards = episode_rewards(batch)
        return over_tokens(standardise(rewards, batch.valid, batch.groups, self.spread, lone=True), batch.mask)


class DrGrpo(Grpo):
    """A = r - group mean: without the division, which favours questions of little spread.

    Source: Liu et al. 2025 (arXiv 2503.20783); its other half is `aggregate=fixed-length`. EMA-PG's switch
    `norm_adv_by_std_in_grpo=False`.
    """

    name = "dr_grpo"
    spread = False
