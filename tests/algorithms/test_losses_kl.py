"""Losses and KL estimators: hand-computed values and gradients, bounds, names."""

from __future__ import annotations

import math

import pytest
import torch

from ssp import kl, losses
from ssp.errors import InputError


def run(name, logprobs, behaviour, advantages, **options):
    leaf = torch.tensor(logprobs, requires_grad=True)
    tokens = losses.Tokens(leaf, torch.tensor(behaviour), torch.tensor(advantages), torch.zeros(len(logprobs)).long())
    values, clipped = losses.get(name)(tokens, losses.LossOptions(**options))
    values.sum().backward()
    return values.detach(), clipped, leaf.grad


def test_pg_gradient_is_minus_the_advantage():
    values, clipped, grad = run("pg", [-1.0, -2.0], [-5.0, 0.0], [0.5, -1.5])
    assert values.tolist() == [0.5, -3.0] and grad.tolist() == [-0.5, 1.5] and not clipped.any()


def test_ppo_clip_stops_the_gradient_only_where_the_bound_is_active():
    behaviour, ratios = [-1.0] * 6, [1.5, 1.5, 0.5, 0.5, 1.27, 1.29]
    logprobs = [-1.0 + math.log(r) for r in ratios]
    values, clipped, grad = run("ppo_clip", logprobs, behaviour, [1.0, -1.0, 1.0, -1.0, 1.0, 1.0])
    assert clipped.tolist() == [True, False, False, True, False, True]
    torch.testing.assert_close(values, torch.tensor([-1.28, 1.5, -0.5, 0.8, -1.27, -1.28]))
    torch.testing.assert_close(grad, torch.tensor([0.0, 1.5, -0.5, 0.0, -1.27, 0.0]))


def test_ppo_clip_on_policy_has_the_policy_gradient():
    _, _, clip = run("ppo_clip", [-1.0, -2.0], [-1.0, -2.0], [0.5, -1.5])
    _, _, plain = run("pg", [-1.0, -2.0], [-1.0, -2.0], [0.5, -1.5])
    torch.testing.assert_close(clip, plain)


def test_tis_weights_are_truncated_and_carry_no_gradient():
    logprobs = [-1.0 + math.log(r) for r in (5.0, 0.25)]
    values, clipped, grad = run("tis", logprobs, [-1.0, -1.0], [1.0, 1.0], tis_cap=2.0)
    torch.testing.assert_close(grad, torch.tensor([-2.0, -0.25]))
    torch.testing.assert_close(values, torch.tensor([-2.0 * logprobs[0], -0.25 * logprobs[1]]))
    assert clipped.tolist() == [True, False]


@pytest.mark.parametrize("name", losses.names())
def test_extreme_ratios_stay_finite(name):
    values, _, grad = run(name, [-1e-6, -500.0], [-500.0, -1e-6], [-1.0, 1.0])
    assert torch.isfinite(values).all() and torch.isfinite(grad).all()


def test_kl_values_by_hand():
    logprobs, reference = torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -1.0])
    torch.testing.assert_close(kl.get("k1")(logprobs, reference), torch.tensor([0.5, -1.0]))
    torch.testing.assert_close(kl.get("k2")(logprobs, reference), torch.tensor([0.125, 0.5]))
    torch.testing.assert_close(
        kl.get("k3")(logprobs, reference), torch.tensor([math.exp(-0.5) - 1 + 0.5, math.exp(1) - 1 - 1])
    )


def test_k1_and_k3_are_unbiased_and_k2_and_k3_have_the_known_gradients():
    torch.manual_seed(0)
    logits, reference = torch.randn(6, dtype=torch.float64), torch.log_softmax(torch.randn(6, dtype=torch.float64), 0)
    logits.requires_grad_()
    logprobs = torch.log_softmax(logits, 0)
    probs = logprobs.exp().detach()
    reverse = (logprobs.exp() * (logprobs - reference)).sum()
    forward = (reference.exp() * (reference - logprobs)).sum()

    def grad(value):
        return torch.autograd.grad(value, logits, retain_graph=True)[0]

    expected = {name: (probs * kl.get(name)(logprobs, reference)).sum() for name in kl.names()}
    torch.testing.assert_close(expected["k1"], reverse)
    torch.testing.assert_close(expected["k3"], reverse)
    torch.testing.assert_close(grad(expected["k1"]), torch.zeros(6, dtype=torch.float64))
    torch.testing.assert_close(grad(expected["k2"]), grad(reverse))
    torch.testing.assert_close(grad(expected["k3"]), grad(forward))


@pytest.mark.parametrize("name", kl.names())
def test_kl_is_zero_at_the_reference_finite_far_away_and_blind_to_the_references_gradient(name):
    logprobs = torch.tensor([-1.0, 0.0, -300.0], requires_grad=True)
    reference = torch.tensor([-1.0, -300.0, 0.0], requires_grad=True)
    values = kl.get(name)(logprobs, reference)
    values.sum().backward()
    assert values[0] == 0 and torch.isfinite(values).all() and torch.isfinite(logprobs.grad).all()
    assert reference.grad is None


def test_k3_clamps():
    assert kl.get("k3")(torch.tensor([-300.0, 0.0]), torch.tensor([0.0, -300.0])).tolist() == [10.0, 10.0]


@pytest.mark.parametrize(("module", "known"), [(losses, "pg, ppo_clip, tis"), (kl, "k1, k2, k3")])
def test_unknown_names_list_the_known_ones(module, known):
    with pytest.raises(InputError, match=known):
        module.get("nope")
