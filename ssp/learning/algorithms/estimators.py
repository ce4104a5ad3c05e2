"""The advantage estimators of the package: what a reward is compared with, and how that is spread over tokens."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ssp.learning.algorithms import base
from ssp.learning.algorithms.base import Algorithm, episode_rewards, over_tokens, standardise
from ssp.learning.batch import Batch


class Grpo(Algorithm):
    """A = (r - group mean) / (group std + 1e-6), the same on every model token of the episode.

    Source: Shao et al. 2024 (arXiv 2402.03300), section 4.1.2, outcome supervision, with the sample standard deviation, the
    epsilon and the rule for a group of one (mean 0, std 1) of verl, which Search-R1 and Search Self-play train with."""

    name, needs_group, baseline = "grpo", True, "group"
    spread = True

    def advantages(self, batch: Batch) -> Tensor:
        """Of each episode against its group."""
        rewards = episode_rewards(batch)
        return over_tokens(standardise(rewards, batch.valid, batch.groups, self.spread, lone=True), batch.mask)


class DrGrpo(Grpo):
    """A = r - group mean: without the division, which favours questions of little spread.

    Source: Liu et al. 2025 (arXiv 2503.20783); its other half is `aggregate=fixed-length`. EMA-PG's switch
    `norm_adv_by_std_in_grpo=False`."""

    name, spread = "dr_grpo", False


class GrpoTurns(Grpo):
    """`Grpo`, turn by turn: A of turn k = (G_k - group mean of G_k) / (group std of G_k + 1e-6), G_k what the attempt earned
    from turn k on; an attempt with fewer turns counts with its last one. `Grpo` itself where only last turns earn.

    Source: the sum over later steps is that of Shao et al. 2024 (arXiv 2402.03300), section 4.1.3, process supervision,
    which divides by the spread of single steps; one baseline a turn is Zeng et al. 2025 (arXiv 2505.11821)."""

    name, by_turn = "grpo_turns", True

    def advantages(self, batch: Batch) -> Tensor:
        """Of each turn against the same turn of the group's attempts."""
        mask = batch.mask.bool()
        begins = mask & ~torch.nn.functional.pad(mask, (1, -1))
        turns, later = begins.cumsum(1) - 1, base.returns(base.token_rewards(batch), mask, 1.0)
        out = torch.zeros(mask.shape, dtype=torch.float32)
        for turn in range(int(begins.sum(dim=1).max())):
            counted = turns.clamp(max=turn).amax(dim=1, keepdim=True)  # the turn itself, or the row's last one
            earned = later.gather(1, (begins & (turns == counted)).int().argmax(dim=1, keepdim=True)).squeeze(1)
            advantage = standardise(earned, batch.valid, batch.groups, lone=True)
            out = torch.where(mask & (turns == turn), advantage.float()[:, None], out)
        return out


class Rloo(Algorithm):
    """A_i = r_i - mean of the group's other rewards = (r_i - group mean) n / (n - 1).

    Source: Ahmadian et al. 2024 (arXiv 2402.14740), after Kool et al. 2019."""

    name, needs_group, baseline = "rloo", True, "group"

    def advantages(self, batch: Batch) -> Tensor:
        """Of each episode against the others of its group."""
        scored = batch.valid.bool()
        same = (batch.groups[:, None] == batch.groups[None, :]) & scored[None, :]
        n = same.sum(dim=1).double()
        centred = standardise(episode_rewards(batch), scored, batch.groups, spread=False)
        return over_tokens(torch.where(n > 1, centred * n / (n - 1).clamp(min=1), 0.0), batch.mask)


class Reinforce(Algorithm):
    """A = (r - batch mean) / (batch std + 1e-6) on every model token. Source: Williams 1992 (REINFORCE with a baseline)."""

    name, baseline = "reinforce", "batch"

    def advantages(self, batch: Batch) -> Tensor:
        """Of each episode against the batch."""
        return over_tokens(standardise(episode_rewards(batch), batch.valid, torch.zeros_like(batch.groups)), batch.mask)


class ReinforceNone(Algorithm):
    """A = r: `Reinforce` without a baseline."""

    name, baseline = "reinforce_none", "none"

    def advantages(self, batch: Batch) -> Tensor:
        """What each episode earned."""
        return over_tokens(torch.where(batch.valid.bool(), episode_rewards(batch), 0.0), batch.mask)


class ReinforceRunning(Algorithm):
    """A = r - b, b = sum_s 0.9^(t-1-s) m_s / sum_s 0.9^(t-1-s) over the earlier batches s < t that had a valid row, m_s the
    mean of their valid rewards; b = 0 in the first. Stateful: each call moves the baseline."""

    name, baseline = "reinforce_running", "running"
    decay = 0.9
    kept: Mapping[str, float] = {"total": 0.0, "weight": 0.0}

    def advantages(self, batch: Batch) -> Tensor:
        """Of each episode against the baseline, which then takes the batch in."""
        rewards, valid = episode_rewards(batch), batch.valid.bool()
        total, weight = self.kept["total"], self.kept["weight"]
        out = torch.where(valid, rewards - (total / weight if weight else 0.0), 0.0)
        if bool(valid.any()):
            mean = float(rewards[valid].mean())
            self.kept = {"total": self.decay * total + mean, "weight": self.decay * weight + 1.0}
        return over_tokens(out, batch.mask)


class ReinforcePP(Algorithm):
    """REINFORCE++: A_t = (G_t - mean) / (std + 1e-6) over the batch's model tokens, G_t the discounted return over them.

    Source: Hu et al. 2025 (arXiv 2501.03262); name and gamma as in verl's `reinforce_plus_plus`."""

    name, baseline, whitens = "reinforce_pp", "batch", True

    def advantages(self, batch: Batch) -> Tensor:
        """Of each token's return, over the batch."""
        on = batch.mask.bool() & batch.valid.bool()[:, None]
        return base.whiten(base.returns(self.earned(batch, on), batch.mask, self.gamma), on)

    def earned(self, batch: Batch, on: Tensor) -> Tensor:
        """What each token in `on` [N, T] earned, float64 [N, T]."""
        return base.token_rewards(batch)


class ReinforcePPBaseline(ReinforcePP):
    """`ReinforcePP` of token rewards of which the episode's last has the group's mean of `rewards` taken off (a group of
    one: mean 0). With gamma 1 and no token rewards but the outcome, G_t is r - group mean on every token.

    Source: Hu et al. 2025 (arXiv 2501.03262), the variant for several answers a question. A KL in the token rewards is in
    G_t and not in the mean, as in OpenRLHF; verl's mean has it, and puts the whole difference on every token."""

    name, needs_group = "reinforce_pp_baseline", True

    def earned(self, batch: Batch, on: Tensor) -> Tensor:
        """With the group's mean taken off the last token."""
        earned, rewards = base.token_rewards(batch), batch.rewards.double()
        centred = standardise(rewards, batch.valid, batch.groups, spread=False, lone=True)
        return earned - torch.where(base.ends(on), (rewards - centred)[:, None], 0.0)


class Remax(Algorithm):
    """A_t = G_t - b, G_t the discounted return over policy tokens, b = `baseline_rewards`: what the greedy answer earned.

    Source: Li et al. 2024 (arXiv 2310.10505)."""

    name, baseline = "remax", "greedy"

    def advantages(self, batch: Batch) -> Tensor:
        """Of each token's return against the greedy answer; 0 where that is void."""
        baseline = base.required(batch, "baseline_rewards", self.name).double()
        on = batch.mask.bool() & (batch.valid.bool() & ~torch.isnan(baseline))[:, None]
        earned = base.returns(base.token_rewards(batch), batch.mask, self.gamma)
        return torch.where(on, earned - baseline[:, None], 0.0).float()


class Rae(Algorithm):
    """A_i = r_i - b, then b = 0.95 b + 0.05 r_i, through the valid rows in batch order; b is 0 before the first.

    Source: SPIRAL, Liu et al. 2025 (arXiv 2506.24119), role-conditioned advantage estimation, with its decay.
    Stateful: each call moves the baseline."""

    name, baseline = "rae", "running"
    decay = 0.95
    kept: Mapping[str, float] = {"baseline": 0.0}

    def advantages(self, batch: Batch) -> Tensor:
        """Of each row against the baseline, which then follows it."""
        rewards = episode_rewards(batch)
        out, mean = torch.zeros_like(rewards), self.kept["baseline"]
        for row in torch.nonzero(batch.valid).squeeze(1).tolist():
            reward = float(rewards[row])
            out[row] = reward - mean
            mean = self.decay * mean + (1 - self.decay) * reward
        self.kept = {"baseline": mean}
        return over_tokens(out, batch.mask)


class Gae(Algorithm):
    """A_t = d_t + gamma lam A_{t+1}, d_t = r_t + gamma V_{t+1} - V_t, t over a row's model tokens; V = 0 after the last.

    Source: Schulman et al. 2016 (arXiv 1506.02438), eq. 16. `values[:, t]` is the value before token t is written."""

    name, needs_values, baseline = "gae", True, "values"

    def advantages(self, batch: Batch) -> Tensor:
        """Of each token, from the row's last one backwards."""
        values, rewards = base.required(batch, "values", self.name).double(), base.token_rewards(batch)
        on = batch.mask.bool() & batch.valid.bool()[:, None]
        out = torch.zeros_like(rewards)
        later = next_value = rewards.new_zeros(len(rewards))
        for t in reversed(range(rewards.shape[1])):
            here = rewards[:, t] + self.gamma * next_value - values[:, t] + self.gamma * self.lam * later
            out[:, t] = torch.where(on[:, t], here, 0.0)
            later = torch.where(on[:, t], here, later)
            next_value = torch.where(on[:, t], values[:, t], next_value)
        return out.float()
