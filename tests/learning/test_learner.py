"""The learner: exact log-probs, zero gradient off the model tokens, micro-batch invariance, figures, failures."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest
import torch
from solo import SoloLearner, gradients, timeless
from transformers import AutoModelForCausalLM

from ssp.base.errors import InvariantError
from ssp.learning import losses
from ssp.learning.backends import backend
from ssp.learning.batch import collate
from ssp.learning.forward import score
from tests.choices import choices


def part(batch, rows):
    names = ("ids", "mask", "logprobs", "rewards", "valid", "groups")
    return replace(batch, **{name: getattr(batch, name)[rows] for name in names})


def test_scores_equal_the_plain_full_forward_with_a_padding_mask(model_dir, make_batch):
    batch = make_batch(8)
    model = AutoModelForCausalLM.from_pretrained(model_dir).eval()
    logprobs, entropy, _ = score(model, batch.ids, batch.mask, temperature=0.7)
    real = batch.ids.new_zeros(batch.ids.shape)
    for i, row in enumerate(batch.mask):
        real[i, : int(torch.nonzero(row).max()) + 1] = 1
    with torch.no_grad():
        full = torch.log_softmax(model(batch.ids, attention_mask=real).logits / 0.7, -1)[:, :-1]
    predicts = batch.mask[:, 1:]
    want = full.gather(2, batch.ids[:, 1:, None]).squeeze(2)[predicts]
    torch.testing.assert_close(logprobs, want, atol=2e-5, rtol=0)
    torch.testing.assert_close(entropy, -(full.exp() * full).sum(-1)[predicts], atol=2e-5, rtol=0)
    assert not entropy.requires_grad


@pytest.mark.parametrize("name", losses.names())
def test_numbers_at_other_positions_change_nothing(model_dir, make_batch, role, name):
    role.loss = name
    batch = make_batch(8, noise=0.3)
    noisy = replace(batch, logprobs=batch.logprobs.clone(), ids=batch.ids.clone())
    noisy.logprobs[~batch.mask] = float("nan")
    last = (batch.mask * torch.arange(batch.mask.shape[1])).amax(1)
    noisy.ids[torch.arange(batch.mask.shape[1])[None] > last[:, None]] = 5  # template tail and padding
    ours, _ = gradients(SoloLearner(model_dir, role), batch)
    theirs, _ = gradients(SoloLearner(model_dir, role), noisy)
    assert all(torch.equal(ours[n], theirs[n]) for n in ours)


SETTINGS = [
    *({"loss": name} for name in losses.names()),
    {"aggregate": "sequence-mean", "entropy_coef": 0.01},
    {"llds_coef": 0.5},
    {"aggregate": "fixed-length", "clip_dual": 3.0},
    {"algorithm": "gae", "lam": 0.9},
    {"algorithm": "reinforce_pp", "gamma": 0.9},
]
KL = [("k3", "loss"), ("topk_forward", "loss"), ("k1", "reward")]
"""Kinds and places; each of SETTINGS has one of them, the first one all."""


@pytest.mark.covers("SR-10")
@pytest.mark.parametrize(
    ("settings", "kl"), [*zip(SETTINGS, cycle(KL)), *((SETTINGS[0], kl) for kl in KL[1:])], ids=str
)
def test_neither_the_micro_batch_split_nor_packing_changes_the_gradient(model_dir, make_batch, role, settings, kl):
    for key, value in settings.items():
        setattr(role, key, value)
    role.kl.coef, (role.kl.kind, role.kl.place), role.kl.weight = 0.05, kl, True
    batch, results = make_batch(24, noise=0.2), []
    batch.ids[1, :4] = batch.ids[0, :4]  # a prompt that packed rows share
    for budget, packing in ((1, False), (150, False), (150, True), (10**6, False)):
        role.learner.token_budget, role.learner.packing = budget, packing
        results.append(gradients(SoloLearner(model_dir, role), batch))
    whole, figures = results[-1]
    for other, other_figures in results[:-1]:
        for parameter in whole:
            torch.testing.assert_close(other[parameter], whole[parameter], atol=1e-6, rtol=0)
        for key in set(figures) - {"seconds", "mfu"}:
            assert other_figures[key] == pytest.approx(figures[key], rel=1e-5, abs=1e-5), key


def test_a_void_row_leaves_no_trace(model_dir, make_batch, role):
    batch = make_batch(8)
    batch.rewards[3], batch.valid[3] = float("nan"), False
    ours, a = gradients(SoloLearner(model_dir, role), batch)
    theirs, b = gradients(SoloLearner(model_dir, role), part(batch, torch.tensor([0, 1, 2, 4, 5, 6, 7])))
    assert all(torch.equal(ours[n], theirs[n]) for n in ours)
    assert timeless(a) == timeless(b)


def test_figures_on_policy_and_off_policy(model_dir, make_batch, role):
    names = set(
        "loss grad_norm lr ratio/mean ratio/max ratio/samples clip_fraction entropy nll tokens seconds mfu".split()
    )
    names |= {f"logprob_mismatch/{name}" for name in ("kl", "max")} | {"advantage/mean_abs"}
    names |= {f"clip_fraction/{name}" for name in ("low", "high", "dual")}
    names |= {f"likelihood/{name}" for name in ("right", "wrong", "drift_right", "drift_wrong")}
    figures = SoloLearner(model_dir, role).update(make_batch())
    assert set(figures) == names and all(isinstance(v, float) for v in figures.values())
    assert figures["logprob_mismatch/max"] < 2e-5 and figures["logprob_mismatch/kl"] < 1e-9
    assert figures["ratio/mean"] == pytest.approx(1, abs=1e-5) and figures["clip_fraction"] == 0
    assert 0 < figures["entropy"] <= math.log(40) and figures["grad_norm"] > 0 and figures["mfu"] > 0
    off = SoloLearner(model_dir, role).update(make_batch(noise=0.3))
    assert off["clip_fraction"] > 0.05 and off["ratio/max"] > 1.5
    assert off["logprob_mismatch/kl"] == pytest.approx(0.045, rel=0.5)  # sigma² / 2


def test_temperature_divides_the_logits(model_dir, make_batch, role):
    role.sampling.temperature = 0.5
    figures = SoloLearner(model_dir, role).update(make_batch(temperature=0.5))
    assert figures["logprob_mismatch/max"] < 2e-5
    role.sampling.temperature = 0.0  # greedy: the engine records log-probs at temperature 1
    assert SoloLearner(model_dir, role).update(make_batch())["logprob_mismatch/max"] < 2e-5


@pytest.mark.parametrize("place", choices("solver.kl.place"))
def test_a_kl_of_ones_own_learns_what_it_computes(model_dir, make_batch, role, tmp_path, place):
    """Value and gradient, where importance weights correct the term in the loss."""
    code = "def squared(logprobs, reference):\n    return 0.5 * (logprobs - reference).square()\n"
    (tmp_path / "apart.py").write_text(code)
    role.kl.coef, role.kl.place, role.kl.weight = 0.3, place, True
    results = {}
    for kind in ("k2", "k3", f"{tmp_path / 'apart.py'}:squared"):
        role.kl.kind = kind
        learner = SoloLearner(model_dir, role)
        for parameter in learner.model.parameters():  # off the reference
            parameter.data.add_(0.02)
        results[kind] = gradients(learner, make_batch(8, noise=0.2))
    (same, figures), (other, _), (own, own_figures) = results.values()
    assert timeless(own_figures) == timeless(figures) and figures["kl/reference"] > 0
    assert all(torch.equal(own[name], same[name]) for name in same)
    assert not all(torch.equal(own[name], other[name]) for name in other)


@pytest.mark.parametrize("aggregate", choices("solver.aggregate"))
def test_the_gradient_is_the_aggregate_over_the_whole_batch(model_dir, make_batch, role, aggregate):
    """Against a direct computation, episode by episode, KL and entropy with the same weights."""
    role.loss, role.aggregate, role.entropy_coef, role.kl.coef, role.kl.kind = "pg", aggregate, 0.3, 0.2, "k2"
    batch, learner = make_batch(8), SoloLearner(model_dir, role)
    for parameter in learner.model.parameters():  # off the reference
        parameter.data.add_(0.02)
    model = copy.deepcopy(learner.model)
    advantages = learner.algorithm.advantages(batch)
    got, figures = gradients(learner, batch)
    full = torch.log_softmax(model(batch.ids).logits, -1)[:, :-1]
    own = full.gather(2, batch.ids[:, 1:, None]).squeeze(2)
    with torch.no_grad():
        reference = AutoModelForCausalLM.from_pretrained(model_dir).eval()
        other = torch.log_softmax(reference(batch.ids).logits, -1)[:, :-1].gather(2, batch.ids[:, 1:, None]).squeeze(2)
    entropy = -(full.exp() * full).sum(-1)
    values = -advantages[:, 1:] * own - 0.3 * entropy + 0.2 * 0.5 * (own - other) ** 2
    rows = [values[i][batch.mask[i, 1:]] for i in range(8)]
    loss = {
        "token-mean": lambda: torch.cat(rows).mean(),
        "sequence-mean": lambda: torch.stack([row.mean() for row in rows]).mean(),
        "fixed-length": lambda: torch.stack([row.sum() / role.limits.total_tokens for row in rows]).mean(),
    }[aggregate]()
    loss.backward()
    assert figures["loss"] == pytest.approx(float(loss.detach()), abs=1e-5)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(got[name], parameter.grad, atol=1e-5, rtol=0)


def test_mini_batches_are_optimizer_steps_of_their_own(model_dir, make_batch, role):
    """Two halves, trained one after the other with the batch's advantages, are one update of two mini-batches."""
    role.algorithm = "reinforce"
    batch = make_batch(8)
    whole = SoloLearner(model_dir, role)
    advantages = whole.algorithm.advantages(batch)
    whole.update(batch)
    role.learner.minibatch = 4
    learner, by_hand = SoloLearner(model_dir, role), SoloLearner(model_dir, role)
    figures = learner.update(batch)
    norms = []
    for rows in (torch.arange(4), torch.arange(4, 8)):
        by_hand.algorithm.advantages = lambda given, rows=rows: advantages[rows]
        norms.append(by_hand.update(part(batch, rows))["grad_norm"])
    ours, theirs, one = learner.weights(), by_hand.weights(), whole.weights()
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-6)
    assert not np.allclose(ours["model.norm.weight"], one["model.norm.weight"], atol=1e-6)
    assert learner.step == 1 and figures["grad_norm"] == pytest.approx(sum(norms) / 2, rel=1e-4)
    assert figures["ratio/max"] > 1.001  # the second one is off policy, and the ratio says so


@pytest.mark.covers("SS-04")
def test_what_the_policy_recalled_is_not_trained(make_episodes):
    episodes = make_episodes(8)
    spans = []
    for episode in episodes:
        start = len(episode.log)
        episode.log.append_model([7, 8, 9, 10], [-1.0, -2.0, -3.0, -4.0], 3)
        episode.log.append_model([11], [-1.0], 3)
        episode.log.recall(start, start + 4)
        spans.append((start, start + 4))
    batch = collate(episodes, [1.0, 0.0] * 4, [e.game for e in episodes])
    for row, (start, end) in enumerate(spans):
        assert batch.ids[row, start:end].tolist() == [7, 8, 9, 10] and not batch.mask[row, start:end].any()
        assert (batch.logprobs[row, start:end] == 0).all()


def test_no_signal_makes_no_step_but_is_measured(model_dir, make_batch, role):
    learner, batch = SoloLearner(model_dir, role), make_batch()
    batch.rewards[:] = 1.0
    before = learner.weights()
    figures = learner.update(batch)
    assert figures["loss"] == figures["grad_norm"] == 0.0 and figures["entropy"] > 0 and learner.step == 1
    assert all(np.array_equal(before[n], w) for n, w in learner.weights().items())
    assert not learner.optimizer.state


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_changes_nothing(model_dir, make_batch, role, bad):
    role.loss = "tis"
    learner = SoloLearner(model_dir, role)
    learner.update(make_batch())
    before, batch = learner.weights(), make_batch(seed=5)
    row = int(torch.nonzero(learner.algorithm.advantages(batch).abs().sum(1))[0])
    position = int(torch.nonzero(batch.mask[row])[0])
    if math.isnan(bad):
        batch.logprobs[row, position] = bad
    else:
        learner.algorithm.advantages = lambda b: torch.where(b.mask, bad, 0.0)
    with pytest.raises(InvariantError, match="finite"):
        learner.update(batch)
    assert learner.step == 1 and all(np.array_equal(before[n], w) for n, w in learner.weights().items())


@pytest.mark.parametrize("name", ["grpo", "gae", "reinforce_pp", "rae"])
@pytest.mark.parametrize("place", ["loss", "reward", "advantage", "future"])
def test_nothing_to_train_is_a_clean_zero_step(model_dir, make_batch, role, name, place):
    role.algorithm, role.kl.coef, role.kl.place, role.kl.target = name, 0.1, place, 0.1
    learner, batch = SoloLearner(model_dir, role), make_batch(4)
    before = learner.weights()
    void = replace(batch, rewards=torch.full((4,), math.nan), valid=torch.zeros(4, dtype=torch.bool))
    silent = replace(batch, mask=torch.zeros_like(batch.mask))
    for empty in (void, silent):
        figures = learner.update(empty)
        assert all(math.isfinite(value) for value in figures.values())
        assert figures["loss"] == figures["grad_norm"] == figures["tokens"] == 0.0
    assert learner.step == 2 and not learner.optimizer.state and learner.divergence.coef == 0.1
    assert all(np.array_equal(before[n], w) for n, w in learner.weights().items())


@pytest.mark.covers("SR-09")
def test_the_rate_warms_up_linearly_then_stays_or_falls(model_dir, make_batch, role):
    role.learner.warmup_steps, role.learner.lr = 4, 1e-3
    batch = make_batch(8)
    learner = SoloLearner(model_dir, role)
    rates = [learner.update(batch)["lr"] for _ in range(6)]
    assert rates == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3, 1e-3])
    assert learner.optimizer.param_groups[0]["lr"] == rates[-1]
    role.learner.schedule = "cosine"
    learner = SoloLearner(model_dir, role, steps=10)
    rates = [learner.update(batch)["lr"] for _ in range(11)]
    falling = [1e-3 * 0.5 * (1 + math.cos(math.pi * k / 7)) for k in range(1, 7)]
    assert rates == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3, *falling, 0.0])
    assert 0 < rates[9] < 1e-4  # the last update still learns


@pytest.mark.covers("SR-09")
@pytest.mark.covers("EP-11")
def test_the_optimizer_is_adamw_with_the_configs_numbers(model_dir, role):
    role.learner.beta2, role.learner.weight_decay = 0.99, 0.01
    (group,) = SoloLearner(model_dir, role).optimizer.param_groups
    assert group["betas"] == (0.9, 0.99) and group["weight_decay"] == 0.01


def test_a_large_policys_step_in_one_pass_is_the_small_ones(model_dir, make_batch, role, monkeypatch, tmp_path):
    role.learner.weight_decay = 0.01
    learners = []
    for bound in (backend.ONE_PASS, 1):
        monkeypatch.setattr(backend, "ONE_PASS", bound)
        learners.append(SoloLearner(model_dir, role))
    assert [learner.optimizer.param_groups[0]["fused"] for learner in learners] == [False, True]
    for seed in range(3):
        for learner in learners:
            learner.update(make_batch(8, seed=seed))
    usual, one_pass = (learner.weights() for learner in learners)
    for name, weight in usual.items():
        np.testing.assert_allclose(one_pass[name], weight, rtol=0, atol=1e-5)
    learners[0].save(tmp_path / "v1", {"role": "solver"})
    learners[1].load(tmp_path / "v1")
    assert learners[1].optimizer.param_groups[0]["fused"], "a learner steps as it was made, not as a checkpoint's did"


def test_weights_are_copies_in_hugging_face_names(model_dir, make_batch, role):
    learner = SoloLearner(model_dir, role)
    weights = learner.weights()
    want = AutoModelForCausalLM.from_pretrained(model_dir)
    assert set(weights) == {n for n, _ in want.named_parameters()}
    for name, parameter in want.named_parameters():
        array = weights[name]
        assert array.dtype == np.float32 and array.flags.c_contiguous and array.flags.owndata
        assert np.array_equal(array, parameter.detach().numpy())
    learner.update(make_batch())
    assert np.array_equal(weights["model.norm.weight"], want.model.norm.weight.detach().numpy())
