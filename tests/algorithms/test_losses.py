"""Losses: hand-computed values and gradients, bounds, token weights, names."""

from __future__ import annotations

import math

import pytest
import torch

from ssp import losses
from ssp.errors import InputError


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


@pytest.mark.covers("SR-01")
@pytest.mark.parametrize(("ratio", "advantage", "loss"), [(1.5, 1.0, -1.2), (0.5, -1.0, 0.8), (1.1, 1.0, -1.1)])
def test_symmetric_clip(ratio, advantage, loss):
    values, _, _ = run("ppo_clip", [math.log(ratio)], [0.0], [advantage], clip_high=0.2)
    assert values.item() == pytest.approx(loss)


@pytest.mark.covers("EP-06")
def test_asymmetric_clip():
    values, _, _ = run("ppo_clip", [math.log(1.3)], [0.0], [1.0], clip_low=0.2, clip_high=0.28)
    assert values.item() == pytest.approx(-1.28)


def test_dual_clip_bounds_what_a_negative_advantage_can_cost():
    logprobs, advantages = [math.log(r) for r in (5.0, 2.0, 5.0)], [-1.0, -1.0, 1.0]
    values, clipped, grad = run("ppo_clip", logprobs, [0.0] * 3, advantages, clip_dual=3.0)
    torch.testing.assert_close(values, torch.tensor([3.0, 2.0, -1.28]))
    torch.testing.assert_close(grad, torch.tensor([0.0, 2.0, 0.0]))
    assert clipped.tolist() == [True, False, True]
    values, _, _ = run("ppo_clip", logprobs, [0.0] * 3, advantages)
    torch.testing.assert_close(values, torch.tensor([5.0, 2.0, -1.28]))


def test_token_weights():
    counts = torch.tensor([2, 6, 0])
    assert losses.token_weights(counts, "token-mean", 100)[:2].tolist() == [1 / 8, 1 / 8]
    assert losses.token_weights(counts, "sequence-mean", 100)[:2].tolist() == [1 / 4, 1 / 12]
    assert losses.token_weights(counts, "fixed-length", 100)[:2].tolist() == [1 / 200, 1 / 200]
    for aggregate in losses.AGGREGATES:
        assert torch.isfinite(losses.token_weights(torch.zeros(2).long(), aggregate, 100)).all()
    with pytest.raises(InputError, match="fixed-length"):
        losses.token_weights(counts, "mean", 100)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(InputError, match="pg, ppo_clip, tis"):
        losses.get("nope")
