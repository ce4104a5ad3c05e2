"""The advantage estimators of the package: what a reward is compared with, and how that is spread
over tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from ssp.base.errors import InvariantError
from ssp.learning.algorithms.base import Algorithm
from ssp.learning.scored import (
    EPSILON,
    Credit,
    Numbers,
    Scored,
    as_credits,
    groups_of,
    later,
    numbered,
    rewards_of,
    standardised,
    turns_of,
    whole_batch,
)

if TYPE_CHECKING:
    from torch import Tensor

    from ssp.learning.batch import Batch


class Grpo(Algorithm):
    """A = (r - group mean) / (group std + 1e-6), the same on every model token of the episode.

    Source: Shao et al. 2024 (arXiv 2402.03300), section 4.1.2, outcome supervision, with the sample
    standard deviation, the epsilon and the rule for a group of one (mean 0, std 1) of verl, which
    Search-R1 and Search Self-play train with."""

    name = "grpo"
    needs_group = True
    baseline = "group"
    spread = True

    def credits(self, episodes: Sequence[Scored]) -> list[Credit]:
        """Compare each episode with its group."""
        return as_credits(self.compared(episodes, rewards_of(episodes)))

    def compared(self, episodes: Sequence[Scored], earned: Numbers) -> Numbers:
        """`earned`, a number an episode, compared with its group. An episode that was expected alone
        has mean 0 and deviation 1."""
        values = standardised(earned, groups_of(episodes), self.spread)
        deviation = 1.0 + EPSILON if self.spread else 1.0
        alone = np.array([episode.expected == 1 for episode in episodes], dtype=bool)
        return np.where(alone, earned / deviation, values)


class DrGrpo(Grpo):
    """A = r - group mean: without the division, which favours questions of little spread.

    Source: Liu et al. 2025 (arXiv 2503.20783); its other half is `aggregate=fixed-length`. EMA-PG's
    switch `norm_adv_by_std_in_grpo=False`."""

    name = "dr_grpo"
    spread = False


class GrpoTurns(Grpo):
    """`Grpo`, turn by turn: A of turn k = (G_k - group mean of G_k) / (group std of G_k + 1e-6),
    G_k what the attempt earned from turn k on; an attempt with fewer turns counts with its last
    one. `Grpo` itself where only last turns earn.

    Source: the sum over later steps is that of Shao et al. 2024 (arXiv 2402.03300), section 4.1.3,
    process supervision, which divides by the spread of single steps; one baseline a turn is Zeng et
    al. 2025 (arXiv 2505.11821)."""

    name = "grpo_turns"
    by_turn = True

    def credits(self, episodes: Sequence[Scored]) -> list[Credit]:
        """Compare each turn with the same turn of the group's attempts."""
        rewards_of(episodes)
        returns = [later(turns_of(episode)) for episode in episodes]
        credits: list[list[float]] = [[] for _ in episodes]
        for turn in range(max(map(len, returns), default=0)):
            of_turn = [turns[min(turn, len(turns) - 1)] for turns in returns]
            values = self.compared(episodes, np.array(of_turn, dtype=np.float64))
            for credit, turns, value in zip(credits, returns, values.tolist(), strict=True):
                if turn < len(turns):
                    credit.append(value)
        return [tuple(credit) for credit in credits]


class Rloo(Algorithm):
    """A_i = r_i - mean of the group's other rewards = (r_i - group mean) n / (n - 1).

    Source: Ahmadian et al. 2024 (arXiv 2402.14740), after Kool et al. 2019."""

    name = "rloo"
    needs_group = True
    baseline = "group"

    def credits(self, episodes: Sequence[Scored]) -> list[Credit]:
        """Compare each episode with the others of its group."""
        groups = groups_of(episodes)
        _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        n = sizes[group].astype(np.float64)
        centred = standardised(rewards_of(episodes), groups, spread=False)
        credits = centred * n / np.maximum(n - 1, 1)
        return as_credits(np.where(n > 1, credits, 0.0))


class Reinforce(Algorithm):
    """A = (r - batch mean) / (batch std + 1e-6) on every model token. Source: Williams 1992
    (REINFORCE with a baseline)."""

    name = "reinforce"
    baseline = "batch"

    def credits(self, episodes: Sequence[Scored]) -> list[Credit]:
        """Compare each episode with the batch."""
        rewards = rewards_of(episodes)
        return as_credits(standardised(rewards, whole_batch(rewards)))


class Hrpo(Algorithm):
    """A = (R - mean_h) / (std_h + 1e-6) over the episodes of the batch whose rows ask for the same
    number h of hops, and which one version graded. An episode that was played alone with its h has
    R / (1 + 1e-6).

    Source: Dr. Zero (arXiv 2601.07055), hop-grouped relative policy optimisation, as in its
    released code."""

    name = "hrpo"
    baseline = "asked"

    def credits(self, episodes: Sequence[Scored]) -> list[Credit]:
        """Compare each episode with those that were asked for the same."""
        groups = numbered([(episode.asked, episode.grader) for episode in episodes])
        rewards = rewards_of(episodes)
        compared = standardised(rewards, groups)
        alone = np.array([episode.peers == 1 for episode in episodes], dtype=bool)
        return as_credits(np.where(alone, rewards / (1.0 + EPSILON), compared))


class ReinforceNone(Algorithm):
    """A = r: `Reinforce` without a baseline."""

    name = "reinforce_none"
    baseline = "none"

    def credits(self, episodes: Sequence[Scored]) -> list[Credit]:
        """What each episode earned."""
        return as_credits(rewards_of(episodes))


class ReinforceRunning(Algorithm):
    """A = r - b, b = sum_s 0.9^(t-1-s) m_s / sum_s 0.9^(t-1-s) over the earlier batches s < t that
    had an episode, m_s the mean of their rewards; b = 0 in the first. Stateful: each call moves the
    baseline."""

    name = "reinforce_running"
    baseline = "running"
    decay = 0.9
    kept: Mapping[str, float] = {"total": 0.0, "weight": 0.0}

    def credits(self, episodes: Sequence[Scored]) -> list[Credit]:
        """Compare each episode with the baseline, which then takes the batch in."""
        rewards = rewards_of(episodes)
        total = self.kept["total"]
        weight = self.kept["weight"]
        baseline = total / weight if weight else 0.0
        if len(rewards):
            self.kept = {
                "total": self.decay * total + float(rewards.mean()),
                "weight": self.decay * weight + 1.0,
            }
        return as_credits(rewards - baseline)


class ReinforcePP(Algorithm):
    """REINFORCE++: A_t = (G_t - mean) / (std + 1e-6) over the batch's model tokens, G_t the
    discounted return over them.

    Source: Hu et al. 2025 (arXiv 2501.03262); name and gamma as in verl's `reinforce_plus_plus`."""

    name = "reinforce_pp"
    baseline = "batch"
    whitens = True

    def credits(self, episodes: Sequence[Scored]) -> list[Credit]:
        """Compare the return of each turn with the batch, in which a turn counts as often as it has
        tokens. For gamma 1."""
        every_token = []
        counts: list[tuple[int, ...]] = []
        for episode, turns in zip(episodes, self.earned(episodes), strict=True):
            tokens = episode.tokens if len(turns) > 1 else (sum(episode.tokens),)
            if len(tokens) != len(turns):
                turns_with = f"{len(tokens)} turns have tokens"
                raise InvariantError(f"{len(turns)} turns earned, and {turns_with}")
            counts.append(tokens)
            for earned, count in zip(later(turns), tokens, strict=True):
                every_token += [earned] * count
        over = np.array(every_token, dtype=np.float64)
        whitened = iter(standardised(over, whole_batch(over)).tolist())
        credits: list[Credit] = []
        for tokens in counts:
            of_turns = [list(islice(whitened, count)) for count in tokens]
            credits.append(tuple(values[0] if values else 0.0 for values in of_turns))
        return credits

    def earned(self, episodes: Sequence[Scored]) -> list[list[float]]:
        """What each turn earned."""
        rewards_of(episodes)
        return [list(turns_of(episode)) for episode in episodes]

    def advantages(self, batch: Batch) -> Tensor:
        """Compare the return of each token with the batch."""
        from ssp.learning.algorithms import tokens

        returns = tokens.returns(self.token_earned(batch), batch.mask, self.gamma)
        return tokens.whiten(returns, tokens.trained(batch))

    def token_earned(self, batch: Batch) -> Tensor:
        """What each token earned, float64 [N, T]."""
        from ssp.learning.algorithms import tokens

        return tokens.token_rewards(batch)


class ReinforcePPBaseline(ReinforcePP):
    """`ReinforcePP` with the group's mean of `rewards` taken off each episode's last token (a group
    of one: mean 0). With gamma 1 and no token rewards but the outcome, G_t is r - group mean on
    every token.

    Source: Hu et al. 2025 (arXiv 2501.03262), the variant for several answers a question. A KL in
    the token rewards is in G_t and not in the mean, as in OpenRLHF; verl's mean has it, and puts
    the whole difference on every token."""

    name = "reinforce_pp_baseline"
    needs_group = True

    def earned(self, episodes: Sequence[Scored]) -> list[list[float]]:
        """What each turn earned, with the group's mean taken off the last one."""
        rewards = rewards_of(episodes)
        centred = standardised(rewards, groups_of(episodes), spread=False)
        alone = np.array([episode.expected == 1 for episode in episodes], dtype=bool)
        means = np.where(alone, 0.0, rewards - centred).tolist()
        earned = super().earned(episodes)
        for turns, mean in zip(earned, means, strict=True):
            turns[-1] -= mean
        return earned

    def token_earned(self, batch: Batch) -> Tensor:
        """What each token earned, with the group's mean taken off the last one."""
        import torch

        from ssp.learning.algorithms import tokens

        means = batch.rewards.double() - tokens.centred_in_groups(batch)
        last = tokens.ends(tokens.trained(batch))
        return tokens.token_rewards(batch) - torch.where(last, means[:, None], 0.0)


class Remax(Algorithm):
    """A_t = G_t - b, G_t the discounted return over policy tokens, b = `baseline_rewards`: what the
    greedy answer earned.

    Source: Li et al. 2024 (arXiv 2310.10505)."""

    name = "remax"
    baseline = "greedy"
    needs_greedy = True

    def credits(self, episodes: Sequence[Scored]) -> list[Credit]:
        """The return of each turn less what the greedy answer earned; 0 where that is void. For
        gamma 1."""
        rewards_of(episodes)
        return [self._against_greedy(episode) for episode in episodes]

    def teaches(self, group: Sequence[Scored], penalised: bool = False) -> bool:
        """Whether the greedy answer is there, and any turn differs from it."""
        credits = [self._against_greedy(episode) for episode in group]
        is_void = group[0].baseline is not None and np.isnan(group[0].baseline)
        return not is_void and (penalised or any(map(any, credits)))

    def _against_greedy(self, episode: Scored) -> Credit:
        if episode.baseline is None:
            raise InvariantError(f"{self.name} needs a batch with baseline_rewards")
        if np.isnan(episode.baseline):
            return (0.0,)
        return tuple(value - episode.baseline for value in later(turns_of(episode)))

    def advantages(self, batch: Batch) -> Tensor:
        """The return of each token less what the greedy answer earned; 0 where that is void."""
        import torch

        from ssp.learning.algorithms import tokens

        baseline = tokens.required(batch, "baseline_rewards", self.name).double()
        on = tokens.trained(batch) & ~torch.isnan(baseline)[:, None]
        earned = tokens.returns(tokens.token_rewards(batch), batch.mask, self.gamma)
        return torch.where(on, earned - baseline[:, None], 0.0).float()


class Rae(Algorithm):
    """A_i = r_i - b, then b = 0.95 b + 0.05 r_i, through the episodes in batch order; b is 0 before
    the first.

    Source: SPIRAL, Liu et al. 2025 (arXiv 2506.24119), role-conditioned advantage estimation, with
    its decay. Stateful: each call moves the baseline."""

    name = "rae"
    baseline = "running"
    decay = 0.95
    kept: Mapping[str, float] = {"baseline": 0.0}

    def credits(self, episodes: Sequence[Scored]) -> list[Credit]:
        """Compare each episode with the baseline, which then follows it."""
        mean = self.kept["baseline"]
        credits: list[Credit] = []
        for reward in rewards_of(episodes).tolist():
            credits.append((reward - mean,))
            mean = self.decay * mean + (1 - self.decay) * reward
        self.kept = {"baseline": mean}
        return credits


class Gae(Algorithm):
    """A_t = d_t + gamma lam A_{t+1}, d_t = r_t + gamma V_{t+1} - V_t, t over a row's model tokens;
    V = 0 after the last.

    Source: Schulman et al. 2016 (arXiv 1506.02438), eq. 16. `values[:, t]` is the value before
    token t is written. It reads a critic's values, so the learner computes it."""

    name = "gae"
    baseline = "values"
    needs_values = True

    def advantages(self, batch: Batch) -> Tensor:
        """Go through each row's tokens from the last one backwards."""
        import torch

        from ssp.learning.algorithms import tokens

        values = tokens.required(batch, "values", self.name).double()
        rewards = tokens.token_rewards(batch)
        on = tokens.trained(batch)
        out = torch.zeros_like(rewards)
        ahead = next_value = rewards.new_zeros(len(rewards))
        for t in reversed(range(rewards.shape[1])):
            delta = rewards[:, t] + self.gamma * next_value - values[:, t]
            here = delta + self.gamma * self.lam * ahead
            out[:, t] = torch.where(on[:, t], here, 0.0)
            ahead = torch.where(on[:, t], here, ahead)
            next_value = torch.where(on[:, t], values[:, t], next_value)
        return out.float()
