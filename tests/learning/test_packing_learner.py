"""The learner with `learner.packing`: the same figures and weights as with padding, whatever else is switched on."""

from __future__ import annotations

import copy

import pytest
import torch
from solo import SoloLearner, gradients


def updated(model_dir, role, batch, **settings):
    """The gradient and the figures of an update."""
    role = copy.deepcopy(role)
    for name, value in settings.items():
        setattr(role.learner, name, value)
    return gradients(SoloLearner(model_dir, role), batch)


def same(one, other):
    """Gradients to 1e-6, figures of the update to 1e-5."""
    assert one[0].keys() == other[0].keys() and one[0]
    for name, grad in one[0].items():
        torch.testing.assert_close(other[0][name], grad, atol=1e-6, rtol=1e-5)
    for name in ("loss", "entropy", "ratio/mean", "grad_norm", "kl"):
        if name in one[1]:
            assert other[1][name] == pytest.approx(one[1][name], abs=1e-5, rel=1e-5)


@pytest.mark.covers("SR-10")
@pytest.mark.parametrize("coef", [0.0, 0.1])
@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_update_is_the_padded_one(model_dir, make_batch, role, coef, rank, checkpointing):
    role.kl.coef, role.entropy_coef, role.learner.lora.rank = coef, 0.01, rank
    batch = make_batch(12, noise=0.1)
    batch.ids[1, :4] = batch.ids[0, :4]
    padded = updated(model_dir, role, batch, token_budget=200)
    same(padded, updated(model_dir, role, batch, token_budget=150, packing=True, checkpointing=checkpointing))
    same(padded, updated(model_dir, role, batch, token_budget=10**6, packing=True))
