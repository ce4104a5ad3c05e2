"""The critic: values at model tokens only, its loss, warm-up, checkpoint; PPO with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from solo import SoloLearner, goes_on, solo_critic

from ssp.base.errors import InputError, InvariantError
from ssp.learning.figures import Figures


@pytest.fixture
def ppo(role):
    role.algorithm, role.critic.lr = "gae", 1e-2
    return role


def nudge(critic, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for parameter in critic.net["head"].parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    return critic


def test_values_start_at_zero_and_stand_before_model_tokens_only(model_dir, make_batch, ppo):
    batch = make_batch(6)
    critic = solo_critic(model_dir, ppo)
    assert torch.equal(critic.values(batch, batch.mask), torch.zeros(batch.mask.shape))
    values = nudge(critic).values(batch, batch.mask)
    assert torch.equal(values[~batch.mask], torch.zeros(int((~batch.mask).sum()))) and (values[batch.mask] != 0).all()
    row, position = 2, int(torch.nonzero(batch.mask[2])[3])
    hidden = critic.net["body"](input_ids=batch.ids[row : row + 1, :position]).last_hidden_state[0, -1]
    assert float(values[row, position]) == pytest.approx(critic.net["head"](hidden).item(), abs=1e-5)


@pytest.mark.covers("SR-06", "SR-01")
def test_only_positions_that_predict_model_tokens_have_a_value_gradient(model_dir, make_batch, ppo):
    ppo.learner.token_budget = 10**6
    batch = make_batch(8)
    batch = replace(batch, values=torch.zeros(batch.mask.shape))
    critic, seen = nudge(solo_critic(model_dir, ppo)), []

    def keep(module, args, output):
        output.last_hidden_state.retain_grad()
        seen.append(output.last_hidden_state)

    critic.net["body"].register_forward_hook(keep)
    critic.step(replace(batch, targets=torch.ones(batch.mask.shape)), batch.mask, torch.arange(8), Figures())
    (hidden,) = seen
    rows = torch.sort((batch.mask * torch.arange(batch.mask.shape[1])).amax(1), stable=True).indices
    predicts = batch.mask[rows][:, 1 : hidden.shape[1] + 1]
    used = hidden.grad.abs().sum(-1) > 0
    assert not used[~predicts].any() and used[predicts].any()


def test_the_loss_is_half_the_worse_of_plain_and_clipped(model_dir, make_batch, ppo):
    batch = make_batch(4)
    critic = nudge(solo_critic(model_dir, ppo))
    value = critic.values(batch, batch.mask)
    old = torch.where(batch.mask, value + torch.linspace(-2, 2, value.numel()).view(value.shape), 0.0)
    targets = torch.randn(value.shape, generator=torch.Generator().manual_seed(0))
    figures = Figures()
    figures.steps = 1
    critic.step(replace(batch, values=old, targets=targets), batch.mask, torch.arange(4), figures)
    v, o, g = value[batch.mask], old[batch.mask], targets[batch.mask]
    clipped = torch.minimum(torch.maximum(v, o - 0.5), o + 0.5)
    want = 0.5 * torch.maximum((v - g) ** 2, (clipped - g) ** 2).mean()
    summary = figures.summary()
    assert summary["value/loss"] == pytest.approx(float(want), abs=1e-5)
    assert summary["value/mean"] == pytest.approx(float(v.mean()), abs=1e-5)
    assert 0 < summary["value/clip_fraction"] < 1


@pytest.mark.covers("SR-09")
def test_while_it_warms_up_the_policy_stays_as_it_is(model_dir, make_batch, ppo):
    ppo.critic.warmup_steps = 3
    learner, batch = SoloLearner(model_dir, ppo), make_batch(8)
    start = learner.weights()
    for step in range(4):
        assert all(np.array_equal(start[n], w) for n, w in learner.weights().items())
        head = learner.critic.net["head"].weight.detach().clone()
        figures = learner.update(batch)
        assert not torch.equal(head, learner.critic.net["head"].weight)
        assert (figures["grad_norm"] == 0) is (step < 3)
    assert not all(np.array_equal(start[n], w) for n, w in learner.weights().items())


def test_a_loss_that_is_not_finite_changes_nothing(model_dir, make_batch, ppo):
    batch = make_batch(4)
    batch = replace(batch, values=torch.zeros(batch.mask.shape))
    critic = solo_critic(model_dir, ppo)
    before = {name: tensor.clone() for name, tensor in critic.net.state_dict().items()}
    with pytest.raises(InvariantError, match="must be finite"):
        critic.step(
            replace(batch, targets=torch.full(batch.mask.shape, torch.inf)), batch.mask, torch.arange(4), Figures()
        )
    assert all(torch.equal(before[name], tensor) for name, tensor in critic.net.state_dict().items())


def test_save_load_continue_is_bit_exact(tmp_path, model_dir, make_batch, ppo):
    learner, resumed = goes_on(tmp_path / "v2", model_dir, ppo, make_batch)
    ours, theirs = learner.critic.net.state_dict(), resumed.critic.net.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    (tmp_path / "v2" / "critic.pt").write_bytes(b"no critic")
    with pytest.raises(InputError, match=r"sha256 of .*critic\.pt"):
        SoloLearner(model_dir, ppo).load(tmp_path / "v2")
