"""Losses: hand-computed values and gradients, bounds, token weights, names."""

from __future__ import annotations

import math

import pytest
import torch

from ssp.base.errors import InputError
from ssp.config.role import CorrectionConfig, RoleConfig
from ssp.learning import algorithms, losses
from tests.blocks import made
from tests.choices import choices


def run(name, logprobs, behaviour, advantages, proximal=None, rows=None, dtype=torch.float32, **options):
    """(losses, clipped, gradient of their sum); all tokens of one row unless `rows` says otherwise."""
    leaf = torch.tensor(logprobs, dtype=dtype, requires_grad=True)
    given = [torch.tensor(x, dtype=dtype) for x in (behaviour, advantages)]
    start = torch.tensor(logprobs if proximal is None else proximal, dtype=dtype)
    tokens = losses.Tokens(leaf, *given, torch.tensor(rows or [0] * len(logprobs)), start)
    values, clipped = losses.get(name)(tokens, losses.LossOptions(**options))
    values.sum().backward()
    return values.detach(), clipped, leaf.grad


def test_pg_gradient_is_minus_the_advantage():
    values, clipped, grad = run("pg", [-1.0, -2.0], [-5.0, 0.0], [0.5, -1.5])
    assert values.tolist() == [0.5, -3.0] and grad.tolist() == [-0.5, 1.5] and not clipped.any()


@pytest.mark.covers("SR-01", "EP-06")
def test_ppo_clip_stops_the_gradient_only_where_the_bound_is_active():
    behaviour, ratios = [-1.0] * 6, [1.5, 1.5, 0.5, 0.5, 1.27, 1.29]
    logprobs = [-1.0 + math.log(r) for r in ratios]
    values, clipped, grad = run("ppo_clip", logprobs, behaviour, [1.0, -1.0, 1.0, -1.0, 1.0, 1.0])
    assert clipped.tolist() == [True, False, False, True, False, True]
    torch.testing.assert_close(values, torch.tensor([-1.28, 1.5, -0.5, 0.8, -1.27, -1.28]))
    torch.testing.assert_close(grad, torch.tensor([0.0, 1.5, -0.5, 0.0, -1.27, 0.0]))


@pytest.mark.parametrize("name", losses.names())
def test_extreme_ratios_stay_finite(name):
    values, _, grad = run(name, [-1e-6, -500.0], [-500.0, -1e-6], [-1.0, 1.0])
    assert torch.isfinite(values).all() and torch.isfinite(grad).all()


def test_dual_clip_bounds_what_a_negative_advantage_can_cost():
    logprobs, advantages = [math.log(r) for r in (5.0, 2.0, 5.0)], [-1.0, -1.0, 1.0]
    values, clipped, grad = run("ppo_clip", logprobs, [0.0] * 3, advantages, clip_dual=3.0)
    torch.testing.assert_close(values, torch.tensor([3.0, 2.0, -1.28]))
    torch.testing.assert_close(grad, torch.tensor([0.0, 2.0, 0.0]))
    assert clipped.tolist() == [True, False, True]
    values, _, _ = run("ppo_clip", logprobs, [0.0] * 3, advantages)
    torch.testing.assert_close(values, torch.tensor([5.0, 2.0, -1.28]))


def llds(logprobs, behaviour, advantages, **of):
    """Values and the gradient of their sum, of tokens in one row."""
    leaf = torch.tensor(logprobs, requires_grad=True)
    given = [torch.tensor(x) for x in (behaviour, advantages)]
    turns = torch.tensor(of["turns"]) if "turns" in of else None
    values = losses.llds(losses.Tokens(leaf, *given, torch.tensor(of.get("rows", [0] * len(logprobs))), turns=turns))
    values.sum().backward()
    return values.detach().tolist(), leaf.grad.tolist()


@pytest.mark.covers("U15")
def test_llds_pulls_up_the_tokens_of_a_good_turn_that_became_less_likely():
    """Turn 0 lost 0.5 + 1 - 0.25, turn 1 gained, turn 2 is bad, turn 3 is of advantage 0."""
    logprobs, behaviour = [-1.5, -2.0, -0.75, -0.5, -2.0, -3.0, -1.5], [-1.0, -1.0, -1.0, -2.0, -1.5, -1.0, -1.0]
    advantages, turns = [1.0, 1.0, 1.0, 1.0, 1.0, -1.0, 0.0], [0, 0, 0, 1, 1, 2, 3]
    values, grad = llds(logprobs, behaviour, advantages, turns=turns)
    assert values == [0.5, 1.0, 0.0, 0.0, 0.0, 0.0, 0.5] and grad == [-1.0, -1.0, 0.0, 0.0, 0.0, 0.0, -1.0]
    values, _ = llds(logprobs[:5], behaviour[:5], advantages[:5])  # by rows: 1.25 lost, 1 gained
    assert values == [0.5, 1.0, 0.0, 0.0, 0.5]
    values, _ = llds(logprobs[:4], behaviour[:4], advantages[:4])  # 1.25 lost, 1.5 gained
    assert values == [0.0] * 4


def test_token_weights():
    counts = torch.tensor([2, 6, 0])
    assert losses.token_weights(counts, "token-mean", 100)[:2].tolist() == [1 / 8, 1 / 8]
    assert losses.token_weights(counts, "sequence-mean", 100)[:2].tolist() == [1 / 4, 1 / 12]
    assert losses.token_weights(counts, "fixed-length", 100)[:2].tolist() == [1 / 200, 1 / 200]
    one = torch.tensor([1, 0])
    for aggregate, weight in (("token-mean", 1.0), ("sequence-mean", 1.0), ("fixed-length", 1 / 100)):
        assert losses.token_weights(one, aggregate, 100)[0] == weight
    for aggregate in choices("solver.aggregate"):
        assert torch.isfinite(losses.token_weights(torch.zeros(2).long(), aggregate, 100)).all()


def test_unknown_names_list_the_known_ones():
    with pytest.raises(InputError, match="cispo, decoupled, gspo, pg, ppo_clip, tis"):
        losses.get("nope")
    with pytest.raises(
        InputError, match="dr_grpo, gae, grpo, grpo_turns, hrpo, rae, reinforce, reinforce_none, reinforce_pp"
    ):
        algorithms.get("grop")


DOUBLE = torch.float64


def logs(*ratios):
    return [math.log(r) for r in ratios]


def test_gspo_has_the_gradient_of_the_ratio_itself():
    """With one advantage a sequence: that of (1 / sequences) sum max(-A s, -A clip(s)), s = exp(mean log r)."""
    generator = torch.Generator().manual_seed(0)
    sizes, options = [5, 1, 3, 8], losses.LossOptions(0.05, 0.05)
    rows = torch.tensor([row for row, size in enumerate(sizes) for _ in range(size)])
    logprobs = torch.randn(17, dtype=DOUBLE, generator=generator, requires_grad=True)
    behaviour = logprobs.detach() + 0.2 * torch.randn(17, dtype=DOUBLE, generator=generator)
    advantages = torch.tensor([1.0, -0.5, -2.0, 0.7], dtype=DOUBLE)
    weights = losses.token_weights(torch.tensor(sizes), "sequence-mean", 1)[rows]
    values, clipped = losses.gspo(losses.Tokens(logprobs, behaviour, advantages[rows], rows), options)
    s = torch.stack([(logprobs - behaviour)[rows == row].mean().exp() for row in range(4)])
    want = torch.maximum(-advantages * s, -advantages * s.clamp(0.95, 1.05)).mean()
    assert clipped.any() and not clipped.all()
    torch.testing.assert_close((weights * values).sum(), want, atol=1e-12, rtol=0)
    got = torch.autograd.grad((weights * values).sum(), logprobs)[0]
    torch.testing.assert_close(got, torch.autograd.grad(want, logprobs)[0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("given", [True, False])
def test_decoupled_in_the_first_step_has_the_gradient_of_tis(given):
    """The start is then the policy as it is, whether anybody computed it or not."""
    options, leaf = losses.LossOptions(), torch.tensor(logs(3.0, 0.4, 1.1), dtype=DOUBLE, requires_grad=True)
    old, advantages = torch.zeros(3, dtype=DOUBLE), torch.tensor([1.0, -1.0, 0.5], dtype=DOUBLE)
    tokens = losses.Tokens(leaf, old, advantages, torch.zeros(3).long(), leaf.detach() if given else None)
    grads = [torch.autograd.grad(losses.get(name)(tokens, options)[0].sum(), leaf)[0] for name in ("decoupled", "tis")]
    torch.testing.assert_close(*grads)


VOCAB = 6


@pytest.fixture(params=range(3))
def bandit(request):
    """(logits with gradient, log-probs of the sampler, of the update's start, reward of each word), one token an
    episode."""
    generator = torch.Generator().manual_seed(request.param)
    drawn = torch.randn((4, VOCAB), dtype=DOUBLE, generator=generator)
    return drawn[0].requires_grad_(), torch.log_softmax(drawn[1], 0), torch.log_softmax(drawn[2], 0), drawn[3]


def bandit_gradient(name, bandit, options, correction=None):
    """Of the expected loss over the sampler's words, exactly; and which words are clipped or masked."""
    logits, behaviour, start, rewards = bandit
    logprobs = torch.log_softmax(logits, 0)
    tokens = losses.Tokens(logprobs, behaviour, rewards, torch.arange(VOCAB), start)
    values, off = losses.get(name)(tokens, options)
    if correction is not None:
        values, off = losses.corrected(values, tokens, correction)
    return torch.autograd.grad((behaviour.exp() * values).sum(), logits)[0], off


@pytest.mark.parametrize("name", [name for name in losses.names() if name != "pg"])
def test_wide_bounds_give_the_policy_gradient_of_the_policy_in_training(bandit, name):
    """Off policy, to 1e-8: -grad of sum_j pi(j) R(j)."""
    logits, _, _, rewards = bandit
    got, clipped = bandit_gradient(name, bandit, losses.LossOptions(1.0, 1e6, 1e6, 0.0))
    want = torch.autograd.grad(-(torch.softmax(logits, 0) * rewards).sum(), logits)[0]
    torch.testing.assert_close(got, want, atol=1e-8, rtol=0)
    assert not clipped.any()


@pytest.mark.parametrize("name", [name for name in losses.names() if name != "pg"])
def test_tight_bounds_give_the_formulas_gradient(bandit, name):
    """sum_j b(j) c(j) R(j) grad log pi(j), c the coefficient that each paper's bound leaves."""
    logits, behaviour, start, rewards = bandit
    low, high, cap = 0.1, 0.2, 1.2
    logprobs = torch.log_softmax(logits, 0)
    r, w, u = (
        (a - b).exp().detach().tolist() for a, b in ((logprobs, behaviour), (start, behaviour), (logprobs, start))
    )

    def inside(ratio, reward):
        return ratio < 1 + high if reward > 0 else ratio > 1 - low

    c = []
    for j, reward in enumerate(rewards.tolist()):
        if name in ("ppo_clip", "gspo"):
            c.append(r[j] if inside(r[j], reward) else 0.0)
        elif name == "decoupled":
            c.append(min(w[j], cap) * u[j] if inside(u[j], reward) else 0.0)
        else:
            c.append(min(r[j], cap) if name == "tis" else min(max(r[j], 1 - low), 1 + high))
    fixed = behaviour.exp() * torch.tensor(c, dtype=DOUBLE) * rewards
    want = torch.autograd.grad(-(fixed * logprobs).sum(), logits)[0]
    got, clipped = bandit_gradient(name, bandit, losses.LossOptions(low, high, cap))
    torch.testing.assert_close(got, want, atol=1e-8, rtol=0)
    assert clipped.any()


def test_the_token_mask_is_icepop(bandit):
    """E_b of M(k) min(u R, clip(u) R) with M(k) = k inside [low, high], else 0, k = start / sampler."""
    logits, behaviour, start, rewards = bandit
    u, k = (torch.log_softmax(logits, 0) - start).exp(), (start - behaviour).exp()
    surrogate = torch.minimum(u * rewards, u.clamp(0.8, 1.28) * rewards)
    inside = (k >= 0.7) & (k <= 1.5)
    want = torch.autograd.grad(-(behaviour.exp() * torch.where(inside, k, 0.0) * surrogate).sum(), logits)[0]
    options = losses.LossOptions(tis_cap=1.5)
    got, masked = bandit_gradient("decoupled", bandit, options, made(CorrectionConfig, mask="token", low=0.7, high=1.5))
    torch.testing.assert_close(got, want, atol=1e-8, rtol=0)
    assert torch.equal(masked, ~inside) and masked.any()


def masks(kind, ratios, rows, proximal=True, low=0.5, high=2.0):
    """(which tokens stay, gradient of the sum of what stays) of pg with advantage -1."""
    leaf = torch.tensor(logs(*ratios), dtype=DOUBLE, requires_grad=True)
    old, correction = torch.zeros(len(ratios), dtype=DOUBLE), made(CorrectionConfig, mask=kind, low=low, high=high)
    tokens = losses.Tokens(leaf, old, old - 1.0, torch.tensor(rows), leaf.detach() if proximal else None)
    values, masked = losses.corrected(losses.pg(tokens, losses.LossOptions())[0], tokens, correction)
    values.sum().backward()
    assert torch.equal(values.detach()[masked], torch.zeros(int(masked.sum()), dtype=DOUBLE))
    assert torch.equal(leaf.grad, (~masked).double())
    return (~masked).int().tolist()


@pytest.mark.parametrize("proximal", [True, False])
def test_masks_take_tokens_or_whole_sequences_out_of_the_loss(proximal):
    ratios, rows = [3.0, 0.4, 1.0, 4.0, 1.9, 0.3], [5, 5, 5, 2, 2, 0]
    assert masks("none", ratios, rows, proximal) == [1] * 6
    assert masks("token", ratios, rows, proximal) == [0, 0, 1, 0, 1, 0]
    # Geometric means: 1.2 ** (1/3), sqrt(7.6), 0.3; then 1 and sqrt(0.6), whose arithmetic ones are 4.1 and 1.6.
    assert masks("sequence", ratios, rows, proximal) == [1, 1, 1, 0, 0, 0]
    assert masks("sequence", [8.0, 0.125, 3.0, 0.2], [0, 0, 1, 1], proximal, low=0.8, high=1.25) == [1, 1, 0, 0]
    assert masks("token", [0.5, 2.0], [0, 1], proximal, low=0.5 - 1e-9, high=2 + 1e-9) == [1, 1]  # the ends are inside


def test_a_mask_looks_at_the_start_of_the_update_and_not_at_the_drift_since():
    leaf = torch.tensor(logs(9.0, 1.0), requires_grad=True)
    tokens = losses.Tokens(leaf, torch.zeros(2), torch.ones(2), torch.zeros(2).long(), torch.tensor(logs(1.0, 9.0)))
    _, masked = losses.corrected(leaf, tokens, CorrectionConfig("token"))
    assert masked.tolist() == [False, True]


def test_options_that_nobody_sets_are_a_roles():
    assert all(getattr(RoleConfig(), name) == value for name, value in vars(losses.LossOptions()).items())


def test_a_ratio_at_the_cap_is_not_bounded():
    for name in ("tis", "decoupled"):
        _, clipped, _ = run(name, [0.0, 0.0], logs(0.5, 0.25), [1.0, 1.0], tis_cap=math.exp(-math.log(0.5)))
        assert clipped.tolist() == [False, True], name


@pytest.mark.parametrize("far", [30.0, -30.0])
def test_a_ratio_is_held_within_e_to_the_twentieth(far):
    """Of a token whose probability moved without bound, the ratio stays finite: min(20, |log ratio|), as in verl."""
    values, *_ = run("ppo_clip", [far], [0.0], [-math.copysign(1.0, far)], clip_low=1.0, clip_high=1e30, clip_dual=0.0)
    expected = math.exp(math.copysign(20.0, far))
    torch.testing.assert_close(values.abs(), torch.tensor([expected]))
