"""Chunks of the vocabulary projection: the same numbers and gradients, and no more logits at a time than the cap."""

from __future__ import annotations

import copy

import pytest
import torch
from solo import compare
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM

from ssp.learning.forward import score


class Largest(TorchDispatchMode):
    """The most elements that any result had whose last axis is the vocabulary."""

    def __init__(self, vocab):
        super().__init__()
        self.vocab, self.cells = vocab, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.dim() == 2 and out.shape[-1] == self.vocab:
            self.cells = max(self.cells, out.numel())
        return out


@pytest.fixture
def pair(model_dir):
    model = AutoModelForCausalLM.from_pretrained(model_dir).eval()
    reference = copy.deepcopy(model).requires_grad_(False)
    for parameter in reference.parameters():
        parameter.add_(0.05)
    return model, reference


@pytest.mark.covers("EP-03", "SR-10")
@pytest.mark.parametrize("kind", ["full", "topk_reverse", "topk_forward"])
def test_chunks_change_nothing_and_bound_the_logits(pair, make_batch, kind):
    model, reference = pair
    batch, results = make_batch(8, noise=0.1), []
    for cells in (10**9, 40 * 7):  # 7 tokens of a vocabulary of 40
        model.zero_grad()
        options = {"reference": reference, "entropy_gradient": True, "cells": cells}
        kept = []  # numbers for the backward pass, of tokens x words, that are not computed again there

        def keep(tensor, kept=kept):
            kept.append(tensor.numel() if tensor.shape[-1:] == (40,) else 0)
            return tensor

        with Largest(40) as largest, saved_tensors_hooks(keep, lambda tensor: tensor):
            scores = score(model, batch.ids, batch.mask, 0.7, compare(kind), batch.logprobs[batch.mask], **options)
            logprobs, entropy, kl = scores
            (kl.sum() + entropy.sum() - logprobs.sum()).backward()
        assert bool(sum(kept)) is (cells == 10**9)
        results.append((scores, {n: p.grad.clone() for n, p in model.named_parameters()}, largest.cells))
    (whole, gradient, all_cells), (chunked, other, capped) = results
    tokens = int(batch.mask.sum())
    assert all_cells == 40 * tokens and capped <= 40 * 40  # the embedding's own gradient is 40 x 16
    assert capped <= max(40 * 7, 40 * 16)
    for one, other_one in zip(chunked, whole, strict=True):
        torch.testing.assert_close(one, other_one, atol=1e-6, rtol=0)
    for name in gradient:
        torch.testing.assert_close(other[name], gradient[name], atol=2e-5, rtol=1e-5)


@pytest.mark.covers("EP-03")
def test_full_kl_is_the_naive_one(pair, make_batch):
    model, reference = pair
    batch = make_batch(6)
    _, _, kl = score(model, batch.ids, batch.mask, 0.7, compare("full"), reference=reference, cells=40 * 5)
    with torch.no_grad():
        p, q = (torch.log_softmax(m(batch.ids).logits / 0.7, -1)[:, :-1][batch.mask[:, 1:]] for m in (model, reference))
    torch.testing.assert_close(kl.detach(), (p.exp() * (p - q)).sum(-1), atol=1e-5, rtol=0)
    assert all(parameter.grad is None for parameter in reference.parameters())
