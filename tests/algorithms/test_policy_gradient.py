"""Estimators by exhaustive enumeration: episodes of two words out of six with an observation between, and every group of two.

The mean of A grad log pi over all of them is compared with the gradient of the expected reward, in float64 to 1e-8 (rewards,
values and baselines are multiples of 1/8, so that the float32 advantages are exact).
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from ssp.learning import algorithms

WORDS = 6
DOUBLE = torch.float64
MASK = torch.tensor([False, True, False, True, False])  # prompt, word, observation, word, template


class Game:
    """Logits of the first word and, after each first word, of the second; a reward in eighths for each pair."""

    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        self.first = torch.randn(WORDS, dtype=DOUBLE, generator=generator, requires_grad=True)
        self.second = torch.randn((WORDS, WORDS), dtype=DOUBLE, generator=generator, requires_grad=True)
        self.rewards = torch.randint(0, 9, (WORDS, WORDS), generator=generator).double() / 8
        self.values = torch.randint(0, 9, (WORDS + 1,), generator=generator).double() / 8
        self.episodes = torch.cartesian_prod(torch.arange(WORDS), torch.arange(WORDS))

    def logprobs(self):
        """[36, 2]: of both words of every episode."""
        a, b = self.episodes.T
        return torch.stack([torch.log_softmax(self.first, 0)[a], torch.log_softmax(self.second, 1)[a, b]], dim=1)

    def gradient(self, value):
        return torch.autograd.grad(value, (self.first, self.second))

    def truth(self):
        """Gradient of the expected reward."""
        chances = self.logprobs().sum(dim=1).exp()
        return self.gradient((chances * self.rewards.flatten()).sum())

    def batch(self, rows, groups, valid=None, token_rewards=None):
        """Episodes `rows` [N] as a batch; values are set by the first word, and nonsense off the words."""
        a = self.episodes[rows][:, 0]
        values = torch.full((len(rows), 5), float("nan"), dtype=DOUBLE)
        values[:, 1], values[:, 3] = self.values[WORDS], self.values[a]
        valid = torch.ones(len(rows), dtype=torch.bool) if valid is None else valid
        return SimpleNamespace(
            rewards=torch.where(valid, self.rewards.flatten()[rows], float("nan")),
            valid=valid,
            groups=groups,
            mask=MASK.expand(len(rows), -1),
            values=values,
            baseline_rewards=torch.full((len(rows),), 0.625, dtype=DOUBLE),
            token_rewards=token_rewards,
        )

    def estimated(self, algorithm, batch, rows, chances):
        """Gradient of sum over rows of chance times A log pi; `chances` [N], without gradient."""
        advantages = algorithm.advantages(batch)[:, MASK].double()
        return self.gradient((chances[:, None] * advantages * self.logprobs()[rows]).sum())

    def alone(self, algorithm, **fields):
        """The estimate from one episode, every episode by its chance, each a batch of its own."""
        rows = torch.arange(WORDS**2)
        chances = self.logprobs().detach().sum(dim=1).exp()
        return self.estimated(algorithm, self.batch(rows, rows, **fields), rows, chances)

    def pairs(self, algorithm, keep=1.0):
        """The mean estimate from two attempts, every pair by its chance; an attempt comes through with chance `keep`,
        and a pair of which none did is no pair."""
        n = WORDS**2
        rows = torch.cartesian_prod(torch.arange(n), torch.arange(n))
        alone = self.logprobs().detach().sum(dim=1).exp()
        chances = (alone[rows[:, 0]] * alone[rows[:, 1]]).repeat_interleave(2)
        total, weight = [0.0, 0.0], 0.0
        for left in ((True, True), (True, False), (False, True)):
            p = (keep if left[0] else 1 - keep) * (keep if left[1] else 1 - keep)
            if not p:
                continue
            valid = torch.tensor(left).repeat(n * n)
            batch = self.batch(rows.flatten(), torch.arange(n * n).repeat_interleave(2), valid)
            got = self.estimated(algorithm, batch, rows.flatten(), p * chances / sum(left))
            total, weight = [t + g for t, g in zip(total, got, strict=True)], weight + p
        return [t / weight for t in total]


@pytest.fixture(params=range(3))
def game(request):
    return Game(request.param)


def same(got, want, factor=1.0):
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, factor * other, atol=1e-8, rtol=0)


def running():
    """A running baseline of 0.375 from an earlier batch."""
    algorithm = algorithms.get("reinforce", baseline="running")
    algorithm.load_state_dict({"total": 0.375, "weight": 1.0})
    return algorithm


@pytest.mark.covers("SR-01", "SR-03")
@pytest.mark.parametrize("name", ["none", "running", "remax", "gae", "grpo"])
def test_a_baseline_that_the_episode_cannot_move_leaves_the_gradient(game, name):
    """No baseline, the past's, the greedy answer's, any critic's (lam 1); and a group of one, which has none."""
    made = {"none": lambda: algorithms.get("reinforce", baseline="none"), "running": running}
    algorithm = made.get(name, lambda: algorithms.get(name))()
    factor = 1 / (1 + 1e-6) if name == "grpo" else 1.0
    if name == "grpo":  # the division is not exact in float32
        for one, other in zip(game.alone(algorithm), game.truth(), strict=True):
            torch.testing.assert_close(one, factor * other, atol=1e-7, rtol=0)
    else:
        same(game.alone(algorithm), game.truth())


@pytest.mark.covers("SR-02")
def test_leave_one_out_is_unbiased_and_the_group_mean_is_by_a_half(game):
    """Of n attempts the mean holds the attempt itself, which costs 1/n of the gradient (Dr. GRPO)."""
    same(game.pairs(algorithms.get("rloo")), game.truth())
    same(game.pairs(algorithms.get("dr_grpo")), game.truth(), 0.5)


@pytest.mark.parametrize("keep", [0.75, 0.5])
def test_missing_attempts_scale_the_gradient_and_do_not_turn_it(game, keep):
    """Faults strike attempts whatever they say. Two came through: as above. One did: nothing to compare, gradient 0."""
    both = keep**2 / (1 - (1 - keep) ** 2)
    same(game.pairs(algorithms.get("rloo"), keep), game.truth(), both)
    same(game.pairs(algorithms.get("dr_grpo"), keep), game.truth(), 0.5 * both)


@pytest.mark.covers("SR-01", "SR-04")
@pytest.mark.parametrize("name", ["gae", "remax"])
def test_rewards_to_go_have_the_gradient_of_all_that_is_earned(game, name):
    """A reward on the first word besides: what came before a word is not its doing, and leaving it out changes nothing."""
    first = torch.arange(WORDS).double() / 8
    a, b = game.episodes.T
    given = torch.full((WORDS**2, 5), 1e9, dtype=DOUBLE)
    given[:, 1], given[:, 3] = first[a], game.rewards[a, b]
    chances = game.logprobs().sum(dim=1).exp()
    want = game.gradient((chances * (first[a] + game.rewards[a, b])).sum())
    same(game.alone(algorithms.get(name), token_rewards=given), want)


@pytest.mark.covers("SR-01")
def test_a_right_critic_makes_every_lam_right(game):
    """With the true values any trace decay gives the gradient; with others only lam 1 does."""
    second = torch.softmax(game.second, 1).detach()
    game.values[:WORDS] = (second * game.rewards).sum(1)
    game.values[WORDS] = (torch.softmax(game.first, 0).detach() * game.values[:WORDS]).sum()
    for lam in (0.0, 0.5, 1.0):
        for one, other in zip(game.alone(algorithms.get("gae", lam=lam)), game.truth(), strict=True):
            torch.testing.assert_close(one, other, atol=1e-7, rtol=0)  # true values are not exact in float32
    game.values[0] += 1.0
    off = game.alone(algorithms.get("gae", lam=0.0))[0] - game.truth()[0]
    assert float(off.abs().max()) > 1e-2
