"""Loss, correction and baseline as a learner runs them: against the functions themselves over full logits, and on a
toy."""

from __future__ import annotations

import pytest
import torch
from solo import SoloLearner, goes_on
from transformers import AutoModelForCausalLM

from ssp.config.role import CorrectionConfig
from ssp.learning import losses
from tests.blocks import made
from tests.choices import choices


def by_hand(model, batch, config, rows, start, advantages):
    """The loss of one optimizer step on `rows`, straight from full logits."""
    logits = model(batch.ids[rows]).logits
    logprobs = torch.log_softmax(logits, -1)[:, :-1].gather(2, batch.ids[rows, 1:, None]).squeeze(2)
    on = batch.mask[rows]
    owners = torch.arange(len(rows))[:, None].expand(on.shape)[on]
    own = logprobs[on[:, 1:]]
    before = own.detach() if start is None else start[rows][on]
    turns = [
        10_000 * row + sum(not was for was in mask[:place])
        for row, mask in enumerate(on.tolist())
        for place in range(len(mask))
        if mask[place]
    ]
    tokens = losses.Tokens(own, batch.logprobs[rows][on], advantages[rows][on], owners, before, torch.tensor(turns))
    options = losses.LossOptions(config.clip_low, config.clip_high, config.tis_cap, config.clip_dual)
    values, _ = losses.get(config.loss)(tokens, options)
    values, masked = losses.corrected(values, tokens, config.correction)
    values = values + config.llds_coef * losses.llds(tokens)
    weights = losses.token_weights(on.sum(dim=1), config.aggregate, config.limits.total_tokens)
    return (values * weights[owners].float()).sum(), int(masked.sum())


@pytest.mark.parametrize("mask", choices("solver.correction.mask"))
@pytest.mark.parametrize(("loss", "llds"), [("decoupled", 0.0), ("gspo", 0.0), ("cispo", 0.0), ("cispo", 0.7)])
def test_two_optimizer_steps_are_those_of_the_formulas(model_dir, make_batch, role, loss, llds, mask):
    """Off-policy data, two mini-batches: in the second the start of the update is no longer the policy. A turn is a run of
    model tokens."""
    role.llds_coef = llds
    role.loss, role.learner.minibatch, role.learner.lr, role.learner.token_budget = loss, 8, 1e-2, 60
    role.clip_low, role.clip_high, role.aggregate = 0.05, 0.1, "sequence-mean"
    role.correction = made(CorrectionConfig, mask=mask, low=0.9, high=1.1)
    batch = make_batch(16, noise=0.4)
    learner, model = SoloLearner(model_dir, role), AutoModelForCausalLM.from_pretrained(model_dir).eval()
    advantages = learner.algorithm.advantages(batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.0)
    start = torch.zeros(batch.mask.shape)
    with torch.no_grad():
        every = torch.log_softmax(model(batch.ids).logits, -1)[:, :-1].gather(2, batch.ids[:, 1:, None]).squeeze(2)
    start[:, 1:] = every
    total = left = 0
    for rows in (torch.arange(8), torch.arange(8, 16)):
        optimizer.zero_grad()
        value, masked = by_hand(model, batch, role, rows, start, advantages)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), role.learner.max_grad_norm)
        optimizer.step()
        total, left = total + value.item(), left + masked
    figures = learner.update(batch)
    assert figures["loss"] == pytest.approx(total / 2, abs=1e-5)
    if mask != "none":
        assert left > 0
    for name, parameter in learner.model.named_parameters():
        torch.testing.assert_close(parameter.detach(), dict(model.named_parameters())[name].detach(), atol=2e-4, rtol=0)


@pytest.mark.covers("SR-03")
def test_a_running_baseline_goes_on_after_a_restart(tmp_path, model_dir, make_batch, role):
    role.algorithm = "reinforce_running"
    learner, resumed = goes_on(tmp_path / "v2", model_dir, role, make_batch)
    assert resumed.algorithm.state_dict() == learner.algorithm.state_dict() != {"total": 0.0, "weight": 0.0}
