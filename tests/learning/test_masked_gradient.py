"""Through a real model: whatever the estimator, loss, mask, KL and bonus, only what predicts a trained token has a
gradient.

The last hidden state feeds the logits and nothing else, so exactly zero there is exactly zero at the logits.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from solo import compare
from transformers import AutoModelForCausalLM

from ssp.config.role import CorrectionConfig
from ssp.learning import algorithms, kl, losses
from ssp.learning.batch import Batch
from ssp.learning.forward import score
from ssp.learning.objective import estimate
from tests.blocks import made
from tests.choices import choices

NAN = float("nan")


@pytest.fixture
def batch(make_batch):
    """8 rows in two groups, one of them void, and nonsense wherever nobody may look."""
    given: Batch = make_batch(8, noise=0.3)
    generator = torch.Generator().manual_seed(5)
    given.rewards[:] = torch.rand(8, generator=generator)
    given.rewards[2], given.valid[2] = NAN, False
    on = given.mask & given.valid[:, None]
    values = torch.where(on, torch.randn(on.shape, generator=generator), NAN)
    return replace(given, logprobs=torch.where(on, given.logprobs, NAN), values=values)


@pytest.fixture
def model(model_dir):
    """Off the start, so that a KL to the start has a gradient; `hidden` gets its last hidden states."""
    model = AutoModelForCausalLM.from_pretrained(model_dir).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.05)
    model.seen = []
    model.base_model.register_forward_hook(lambda module, args, output: model.seen.append(output.last_hidden_state))
    return model


def assert_only_at(term, hidden, predicts):
    """`term`'s gradient is 0 at every hidden state but those that predict; and somewhere there it is not."""
    (gradient,) = torch.autograd.grad(term, hidden, retain_graph=True)
    assert torch.equal(gradient[~predicts], torch.zeros_like(gradient[~predicts]))
    assert float(gradient[predicts].abs().max()) > 0


@pytest.mark.covers("SR-06")
@pytest.mark.parametrize("name", algorithms.names())
@pytest.mark.parametrize("place", ["loss", "reward", "advantage", "future"])
def test_no_estimator_and_no_loss_reaches_an_observation(model, batch, name, place):
    on = batch.mask & batch.valid[:, None]
    given = batch if name == "gae" else replace(batch, values=None)
    if name == "remax":
        given = replace(given, baseline_rewards=torch.full((8,), 0.25))
    penalty = torch.where(on, 0.01 * torch.arange(on.shape[1]), 0.0)
    advantages = estimate(algorithms.get(name, 0.9, 0.8), given, penalty, place).advantages
    assert torch.equal(advantages[~on], torch.zeros(int((~on).sum()))) and bool(torch.isfinite(advantages).all())
    logprobs = score(model, batch.ids, on, 0.7)[0]
    (hidden,) = model.seen
    rows = torch.arange(8)[:, None].expand(on.shape)[on]
    start = batch.logprobs[on] + 0.3 * torch.randn(len(rows), generator=torch.Generator().manual_seed(6))
    tokens = losses.Tokens(logprobs, batch.logprobs[on], advantages[on], rows, start)
    weights = losses.token_weights(on.sum(dim=1), "sequence-mean", 10)[rows]
    for loss in losses.names():
        values, _ = losses.get(loss)(tokens, losses.LossOptions(1.0, 99.0, 9.0, 0.0))
        for mask in choices("solver.correction.mask"):
            kept, masked = losses.corrected(values, tokens, made(CorrectionConfig, mask=mask, low=0.97, high=1.6))
            assert (mask == "none") is not bool(masked.any()) and not masked.all()
            assert_only_at((kept * weights).sum(), hidden, on[:, 1:])


@pytest.mark.covers("SR-06")
@pytest.mark.parametrize("kind", kl.names())
def test_no_kl_and_no_bonus_reaches_an_observation(model, model_dir, batch, kind):
    on = batch.mask & batch.valid[:, None]
    options = {"reference": AutoModelForCausalLM.from_pretrained(model_dir).requires_grad_(False)}
    _, entropy, divergence = score(
        model, batch.ids, on, 0.7, compare(kind), batch.logprobs[on], **options, entropy_gradient=True
    )
    (hidden,) = model.seen
    assert_only_at(divergence.sum(), hidden, on[:, 1:])
    assert_only_at(entropy.sum(), hidden, on[:, 1:])


def test_the_entropy_bonus_has_the_gradient_of_the_entropy(model, batch):
    """At the logits of one position: dH/dz_j = -p_j (log p_j + H), over the temperature."""
    on = torch.zeros_like(batch.mask)
    on[0, int(torch.nonzero(batch.mask[0])[0])] = True
    logits = []
    model.get_output_embeddings().register_forward_hook(lambda module, args, output: logits.append(output))
    _, bonus, _ = score(model, batch.ids, on, 0.7, entropy_gradient=True)
    (got,) = torch.autograd.grad(bonus.sum(), logits[0])
    log_p = torch.log_softmax(logits[0].double() / 0.7, dim=-1)
    entropy = -(log_p.exp() * log_p).sum()
    assert bonus.item() == pytest.approx(entropy.item(), abs=1e-5)
    torch.testing.assert_close(got.double(), -log_p.exp() * (log_p + entropy) / 0.7, atol=1e-7, rtol=1e-4)
