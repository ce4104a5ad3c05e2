"""The anchor: closed form of the average, when it moves, an exact float32 master, its part of a checkpoint."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from solo import SoloLearner
from torch import nn

from ssp.errors import InputError
from ssp.learning.anchor import Anchor


class Small(nn.Module):
    """Two weights and a buffer."""

    def __init__(self, seed, dtype=torch.float32):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.a = nn.Parameter(torch.randn(7, 5, generator=generator).to(dtype))
        self.b = nn.Parameter(torch.randn(3, generator=generator).to(dtype))
        self.register_buffer("seen", torch.randn(4, generator=generator).to(dtype))
        self.register_buffer("count", torch.tensor([1, 2]))


def tensors(model):
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


@pytest.mark.covers("EP-01")
def test_the_average_is_the_closed_form_and_takes_in_every_third_update():
    tau, policies = 0.9, [Small(seed) for seed in range(1, 13)]
    anchor = Anchor(Small(0), tau, every=3)
    want = {name: tensor.double() for name, tensor in tensors(anchor.model).items()}
    before = tensors(anchor.model)
    anchor.follow(policies[0], 0)
    for step, policy in enumerate(policies, 1):
        anchor.follow(policy, step)
        if step < 3:
            assert all(torch.equal(before[name], tensor) for name, tensor in tensors(anchor.model).items())
    taken = [policies[2], policies[5], policies[8], policies[11]]
    for name in ("a", "b", "seen"):
        closed = tau**4 * want[name]
        closed += sum((1 - tau) * tau ** (3 - i) * tensors(p)[name].double() for i, p in enumerate(taken))
        torch.testing.assert_close(tensors(anchor.model)[name].double(), closed, atol=1e-6, rtol=0)
    assert anchor.model.count.tolist() == [1, 2]
    assert not any(p.requires_grad for p in anchor.model.parameters())


@pytest.mark.covers("EP-01")
def test_off_copy_and_no_drift():
    policy = Small(1)
    off, copy = Anchor(Small(0), 1.0, every=1), Anchor(Small(0), 0.0, every=1)
    start = tensors(off.model)
    off.follow(policy, 1)
    copy.follow(policy, 1)
    assert all(torch.equal(start[name], tensor) for name, tensor in tensors(off.model).items())
    assert all(torch.equal(tensors(policy)[name], tensor) for name, tensor in tensors(copy.model).items())
    still = Anchor(Small(1), 0.9, every=1)
    for step in range(1, 50):
        still.follow(policy, step)
    assert all(torch.equal(tensors(policy)[name], tensor) for name, tensor in tensors(still.model).items())


@pytest.mark.covers("EP-01")
def test_a_bfloat16_model_is_the_cast_of_a_float32_master():
    exact, rough = Anchor(Small(0, torch.bfloat16).float(), 0.99, 1), Anchor(Small(0, torch.bfloat16), 0.99, 1)
    for step in range(1, 300):  # steps so small that an average held in bfloat16 would lose them
        for anchor in (exact, rough):
            anchor.follow(Small(1), step)
    for name in ("a", "b", "seen"):
        assert torch.equal(tensors(rough.model)[name], tensors(exact.model)[name].to(torch.bfloat16))


@pytest.mark.covers("EP-01")
def test_two_shards_are_the_whole():
    class Half(nn.Module):
        def __init__(self, whole, rows):
            super().__init__()
            self.a = nn.Parameter(whole.a.detach()[rows].clone())

    whole = Anchor(Small(0), 0.9, 1)
    halves = [Anchor(Half(Small(0), rows), 0.9, 1) for rows in (slice(0, 4), slice(4, 7))]
    for step in range(1, 4):
        whole.follow(Small(step), step)
        for half, rows in zip(halves, (slice(0, 4), slice(4, 7)), strict=True):
            half.follow(Half(Small(step), rows), step)
    assert torch.equal(whole.model.a, torch.cat([half.model.a for half in halves]))


@pytest.fixture
def anchored(role):
    role.kl.coef, role.kl.ema_tau, role.kl.ema_every, role.learner.lr = 0.05, 0.5, 2, 1e-2
    return role


def test_a_learners_anchor_follows_its_policy(model_dir, make_batch, anchored):
    learner = SoloLearner(model_dir, anchored)
    start = learner.weights()
    learner.update(make_batch(seed=0))
    name = "model.norm.weight"
    anchor = dict(learner.divergence.reference.named_parameters())[name]
    assert np.array_equal(anchor.numpy(), start[name])
    learner.update(make_batch(seed=1))
    np.testing.assert_allclose(anchor.numpy(), (start[name] + learner.weights()[name]) / 2, atol=1e-7)


@pytest.mark.covers("EP-10")
def test_a_saved_anchor_goes_on_bit_for_bit_and_is_a_policy_folder(tmp_path, model_dir, make_batch, anchored):
    anchored.kl.target = 0.01
    learner = SoloLearner(model_dir, anchored)
    for seed in range(3):
        learner.update(make_batch(seed=seed))
    learner.save(tmp_path / "v3", {"role": "solver"})
    resumed = SoloLearner(model_dir, anchored)
    resumed.load(tmp_path / "v3")
    assert resumed.divergence.coef == learner.divergence.coef != 0.05
    for seed in range(3, 6):
        batch = make_batch(seed=seed, noise=0.1)
        assert {**learner.update(batch), "seconds": 0} == {**resumed.update(batch), "seconds": 0}
    ours, theirs = (dict(x.divergence.reference.named_parameters()) for x in (learner, resumed))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    alone = SoloLearner(tmp_path / "v3" / "anchor", anchored)
    assert alone.protocol == "mini"
    assert not np.array_equal(alone.weights()["model.norm.weight"], learner.weights()["model.norm.weight"])
    (tmp_path / "v3" / "anchor" / "ssp.json").unlink()
    with pytest.raises(InputError, match="anchor"):
        SoloLearner(model_dir, anchored).load(tmp_path / "v3")
