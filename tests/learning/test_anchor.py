"""The anchor: closed form of the average, when it moves, an exact float32 master, its part of a checkpoint."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from solo import SoloLearner, goes_on
from torch import nn

from ssp.base.errors import InputError, InvariantError
from ssp.learning.backends.backend import named
from ssp.learning.divergence import Average


class Small(nn.Module):
    def __init__(self, seed, dtype=torch.float32):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.a = nn.Parameter(torch.randn(7, 5, generator=generator).to(dtype))
        self.b = nn.Parameter(torch.randn(3, generator=generator).to(dtype))
        self.register_buffer("seen", torch.randn(4, generator=generator).to(dtype))
        self.register_buffer("count", torch.tensor([1, 2]))


def tensors(model):
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def average(model, tau, every):
    """Of the model's own tensors, which are written in place."""
    return Average(named(model), tau, every)


@pytest.mark.covers("EP-01")
def test_the_average_is_the_closed_form_and_takes_in_every_third_update():
    tau, policies, model = 0.9, [Small(seed) for seed in range(1, 13)], Small(0)
    anchor = average(model, tau, every=3)
    before = tensors(model)
    anchor.follow(named(policies[0]), 0)
    for step, policy in enumerate(policies, 1):
        anchor.follow(named(policy), step)
        if step < 3:
            assert all(torch.equal(before[name], tensor) for name, tensor in tensors(model).items())
    taken = [policies[2], policies[5], policies[8], policies[11]]
    for name in ("a", "b", "seen"):
        closed = tau**4 * before[name].double()
        closed += sum((1 - tau) * tau ** (3 - i) * tensors(p)[name].double() for i, p in enumerate(taken))
        torch.testing.assert_close(tensors(model)[name].double(), closed, atol=1e-6, rtol=0)
    assert model.count.tolist() == [1, 2]


@pytest.mark.covers("EP-01")
def test_a_copy_and_no_drift():
    policy, copy, still = Small(1), Small(0), Small(1)
    average(copy, 0.0, every=1).follow(named(policy), 1)
    assert all(torch.equal(tensors(policy)[name], tensor) for name, tensor in tensors(copy).items())
    anchor = average(still, 0.9, every=1)
    for step in range(1, 50):
        anchor.follow(named(policy), step)
    assert all(torch.equal(tensors(policy)[name], tensor) for name, tensor in tensors(still).items())


@pytest.mark.covers("EP-01")
def test_a_bfloat16_model_is_the_cast_of_a_float32_master():
    exact, rough = Small(0, torch.bfloat16).float(), Small(0, torch.bfloat16)
    anchors = [average(model, 0.99, 1) for model in (exact, rough)]
    for step in range(1, 300):  # steps so small that an average held in bfloat16 would lose them
        for anchor in anchors:
            anchor.follow(named(Small(1)), step)
    for name in ("a", "b", "seen"):
        assert torch.equal(tensors(rough)[name], tensors(exact)[name].to(torch.bfloat16))
        assert torch.equal(anchors[1].master[name], tensors(exact)[name])


def test_tensors_of_another_policy_are_a_bug_and_change_nothing():
    model = Small(0)
    anchor, start = average(model, 0.5, 1), tensors(model)
    others = [[("a", torch.ones(7, 5))], [*named(Small(1)), ("c", torch.ones(1))]]
    others.append([(name, tensor.flatten()) for name, tensor in named(Small(1))])
    for given in others:
        for act in (lambda given=given: anchor.follow(given, 1), lambda given=given: anchor.take(given)):
            with pytest.raises(InvariantError, match="its own names and shapes"):
                act()
    assert all(torch.equal(start[name], tensor) for name, tensor in tensors(model).items())
    anchor.take(named(Small(2)))
    assert torch.equal(model.a, Small(2).a)


@pytest.fixture
def anchored(role):
    role.kl.coef, role.kl.ema_tau, role.kl.ema_every, role.learner.lr = 0.05, 0.5, 2, 1e-2
    return role


def test_the_controller_counts_episodes(model_dir, make_batch, anchored, monkeypatch):
    """Not the contexts of one that was cut."""
    anchored.kl.target = 0.01
    learner, batch, told = SoloLearner(model_dir, anchored), make_batch(4), []
    monkeypatch.setattr(learner.divergence, "after", lambda summary, episodes, *rest: told.append(episodes))
    learner.update(batch)
    learner.update(replace(batch, source=torch.tensor([0, 1, 0, 1])))
    assert told == [4, 2]


@pytest.mark.covers("EP-10")
def test_a_saved_anchor_goes_on_bit_for_bit_and_is_a_policy_folder(tmp_path, model_dir, make_batch, anchored):
    anchored.kl.target = 0.01
    learner, resumed = goes_on(tmp_path / "v3", model_dir, anchored, make_batch, first=3)
    assert resumed.divergence.coef == learner.divergence.coef != 0.05
    ours, theirs = (dict(x.divergence.reference.named_parameters()) for x in (learner, resumed))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    alone = SoloLearner(tmp_path / "v3" / "anchor", anchored)
    assert alone.protocol == "mini"
    assert not np.array_equal(alone.weights()["model.norm.weight"], learner.weights()["model.norm.weight"])
    (tmp_path / "v3" / "anchor" / "ssp.json").unlink()
    with pytest.raises(InputError, match="anchor"):
        SoloLearner(model_dir, anchored).load(tmp_path / "v3")
