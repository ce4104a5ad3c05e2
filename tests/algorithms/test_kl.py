"""KL estimators by exhaustive enumeration over a vocabulary of 6: what each one's value and gradient are in
expectation."""

from __future__ import annotations

import math

import pytest
import torch

from ssp.config.role import KlConfig
from ssp.learning import kl
from ssp.learning.kl import importance

VOCAB = 6
SAMPLED = list(kl.SAMPLED)
EVERY = torch.arange(VOCAB)
DOUBLE = torch.float64


@pytest.fixture(params=range(5))
def triple(request):
    """(logits of the policy with gradient, log-probs of the reference, log-probs of the policy that sampled)."""
    generator = torch.Generator().manual_seed(request.param)
    draw = [torch.randn(VOCAB, dtype=DOUBLE, generator=generator) for _ in range(3)]
    return draw[0].requires_grad_(), torch.log_softmax(draw[1], 0), torch.log_softmax(draw[2], 0)


def gradient(value, logits):
    return torch.autograd.grad(value, logits, retain_graph=True)[0]


def truth(logits, reference):
    """(reverse, forward) KL with gradient."""
    logprobs = torch.log_softmax(logits, 0)
    reverse = (logprobs.exp() * (logprobs - reference)).sum()
    return reverse, (reference.exp() * (reference - logprobs)).sum()


def close(got, want, atol=1e-8):
    torch.testing.assert_close(got, want, atol=atol, rtol=0)


@pytest.mark.covers("SR-04", "SR-05", "EP-04")
def test_values_and_gradients_of_the_sampled_estimators(triple):
    """The table of EMA-PG (arXiv 2602.04417): value, and the gradient that it really gives."""
    logits, reference, _ = triple
    logprobs = torch.log_softmax(logits, 0)
    probs = logprobs.exp().detach()
    reverse, forward = truth(logits, reference)
    got = {name: (probs * kl.get(name)(logprobs, reference)).sum() for name in SAMPLED}
    for name, value in {"k1": reverse, "k3": reverse, "k3pp": reverse, "k4": reverse, "k5": forward}.items():
        close(got[name], value)
    assert abs(got["k2"] - reverse) > 1e-3 and abs(got["abs"] - reverse) > 1e-3
    nothing = torch.zeros(VOCAB, dtype=DOUBLE)
    wanted = {"k1": nothing, "k2": gradient(reverse, logits), "k3": gradient(forward, logits)}
    wanted |= {"k3pp": gradient(reverse, logits), "k4": gradient(reverse, logits), "k5": gradient(forward, logits)}
    wanted["abs"] = gradient((logprobs.exp() - reference.exp()).abs().sum(), logits)
    assert set(wanted) == set(SAMPLED), "a new estimator needs its value and its gradient here"
    for name, want in wanted.items():
        close(gradient(got[name], logits), want)


@pytest.mark.covers("EP-05")
@pytest.mark.parametrize("name", SAMPLED)
def test_the_importance_weight_makes_them_off_policy_what_they_are_on_policy(triple, name):
    """Value and gradient; without the weight neither."""
    logits, reference, behaviour = triple
    logprobs = torch.log_softmax(logits, 0)
    values, s = kl.get(name)(logprobs, reference), importance(logprobs, behaviour)
    on_policy = (logprobs.exp().detach() * values).sum()
    weighted, plain = (behaviour.exp() * s * values).sum(), (behaviour.exp() * values).sum()
    close(weighted, on_policy)
    close(gradient(weighted, logits), gradient(on_policy, logits))
    assert abs(plain - on_policy) > 1e-3
    assert float((gradient(plain, logits) - gradient(on_policy, logits)).abs().max()) > 1e-3


@pytest.mark.covers("EP-05")
def test_importance_weights_are_bounded_and_carry_no_gradient():
    logprobs = torch.tensor([30.0, -30.0, 1.0], requires_grad=True)
    s = importance(logprobs, torch.zeros(3))
    assert not s.requires_grad
    torch.testing.assert_close(s, torch.tensor([math.exp(20), math.exp(-20), math.e]))


def expected(name, triple, k):
    """The estimator's expectation over the sampled token, with gradient."""
    logits, reference, behaviour = triple
    policy = torch.log_softmax(logits, 0).expand(VOCAB, VOCAB)
    rows = reference.expand(VOCAB, VOCAB)
    values = kl.get(name)(policy, rows, EVERY, behaviour, k)
    return (behaviour.exp() * values).sum()


@pytest.mark.covers("EP-02")
@pytest.mark.parametrize("k", [0, 1, 2, 3, 5, 6])
@pytest.mark.parametrize("name", ["topk_reverse", "topk_forward"])
def test_top_k_is_exact_at_every_k_off_policy(triple, name, k):
    logits, reference, _ = triple
    want = truth(logits, reference)[name == "topk_forward"]
    got = expected(name, triple, k)
    close(got, want)
    close(gradient(got, logits), gradient(want, logits))


@pytest.mark.covers("EP-02")
@pytest.mark.parametrize("k", [0, 1, 2, 3, 5, 6])
@pytest.mark.parametrize(("name", "sign"), [("topk_reverse", 1.0), ("topk_forward", -1.0)])
def test_the_published_top_k_has_the_value_but_not_the_gradient(triple, name, sign, k):
    logits, reference, _ = triple
    want = truth(logits, reference)[name == "topk_forward"]
    got = expected(f"{name}_paper", triple, k)
    close(got, want)
    probs = torch.softmax(logits, 0)
    top = (probs.detach() if name == "topk_reverse" else reference).topk(k).indices
    close(gradient(got, logits) - gradient(want, logits), sign * gradient(probs[top].sum(), logits))


@pytest.mark.covers("EP-02")
def test_the_ends_of_top_k(triple):
    """k = 0 is k4 (reverse) and, as published, k5 (forward); k = vocabulary is the whole KL for any sampled token."""
    logits, reference, _ = triple
    logprobs = torch.log_softmax(logits, 0)
    policy, rows = logprobs.expand(VOCAB, VOCAB), reference.expand(VOCAB, VOCAB)

    def of(name, k):
        return kl.get(name)(policy, rows, EVERY, None, k)

    close(of("topk_reverse_paper", 0), kl.k4(logprobs, reference))
    close(of("topk_forward_paper", 0), kl.k5(logprobs, reference))
    reverse, forward = truth(logits, reference)
    close(of("topk_reverse", VOCAB), reverse.expand(VOCAB))
    close(of("topk_forward", 99), forward.expand(VOCAB))
    close(of("full", 1), reverse.expand(VOCAB))
    close(gradient(of("full", 1)[0], logits), gradient(reverse, logits))


@pytest.mark.covers("EP-04")
@pytest.mark.parametrize("name", SAMPLED)
def test_zero_at_the_reference_finite_far_away_and_blind_to_the_references_gradient(name):
    logprobs = torch.tensor([-1.0, 0.0, -300.0, -25.0], requires_grad=True)
    reference = torch.tensor([-1.0, -300.0, 0.0, -1.0], requires_grad=True)
    values = kl.get(name)(logprobs, reference)
    values.sum().backward()
    assert values[0] == 0 and torch.isfinite(values).all() and torch.isfinite(logprobs.grad).all()
    assert reference.grad is None


@pytest.mark.covers("EP-04")
def test_clamps():
    far, near = torch.tensor([-300.0, 0.0]), torch.tensor([0.0, -300.0])
    for name in ("k3", "k3pp"):
        assert kl.get(name)(far, near).tolist() == [10.0, 10.0]
    torch.testing.assert_close(kl.k5(far, near), torch.tensor([20 * math.exp(20), -20 * math.exp(-20)]))
    assert kl.k1(far, near).tolist() == kl.k4(far, near).tolist() == [-300.0, 300.0]


@pytest.mark.covers("SR-04")
def test_the_controller_moves_the_coefficient_towards_the_target():
    aimed = KlConfig(target=0.1)
    size = 100 / aimed.horizon
    assert kl.steered(0.001, aimed, 0.11, 100) == pytest.approx(0.001 * (1 + 0.1 * size))
    assert kl.steered(0.001, aimed, 0.05, 100) == pytest.approx(0.001 * (1 - 0.2 * size))  # kept within ±0.2
    assert kl.steered(0.001, aimed, 9.0, 100) == pytest.approx(0.001 * (1 + 0.2 * size))
    assert kl.steered(0.001, KlConfig(), 9.0, 100) == 0.001
