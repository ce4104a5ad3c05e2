"""The KL over a whole vocabulary: the naive number, within memory that tokens x words do not enter."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import Qwen2Config, Qwen2ForCausalLM

from ssp.learning import kl
from ssp.learning.forward import score
from ssp.learning.kl import TopK

WORDS, CELLS = 8192, 8192 * 8


@pytest.fixture(scope="module")
def pair():
    """A policy of many words and few weights, and a reference that differs."""
    torch.manual_seed(0)
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=WORDS, num_key_value_heads=1, tie_word_embeddings=True, **shape))
    reference = copy.deepcopy(model).requires_grad_(False)
    for parameter in reference.parameters():
        parameter.mul_(1.5)
    return model.eval(), reference.eval()


def scored(pair, tokens, cells, kind="full"):
    """One row of so many tokens through the forward and backward pass of the KL."""
    model, reference = pair
    ids = torch.randint(0, WORDS, (1, tokens + 1), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[:, 0] = False

    def compare(policy, other, sampled, behaviour):
        return kl.get(kind)(policy, other, sampled, behaviour, TopK(4))

    model.zero_grad(set_to_none=True)
    values = score(model, ids, mask, 1.0, compare, reference=reference, cells=cells).kl
    values.sum().backward()
    return ids, mask, values.detach()


def peak(pair, tokens, cells, kind):
    """Most bytes of the allocator in use at a time, above what was in use before."""
    scored(pair, 2, cells, kind)  # what the first call of anything allocates for good
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        scored(pair, tokens, cells, kind)
    found = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    used = most = 0
    for event in sorted(found, key=lambda event: event.start_ns()):
        used += event.nbytes()
        most = max(most, used)
    assert found
    return most


@pytest.mark.covers("EP-03")
def test_chunked_is_naive(pair):
    ids, mask, values = scored(pair, 60, CELLS)
    with torch.no_grad():
        p, q = (torch.log_softmax(model(ids).logits, -1)[:, :-1][mask[:, 1:]].double() for model in pair)
    torch.testing.assert_close(values.double(), (p.exp() * (p - q)).sum(-1), atol=1e-6, rtol=0)
    assert float(values.min()) > 1e-3


@pytest.mark.covers("EP-03")
@pytest.mark.parametrize("kind", ["full", "topk_reverse", "topk_forward"])
def test_memory_is_bounded_by_the_chunk_and_not_by_the_tokens(pair, kind):
    """32 chunks or 128: the same peak, but for what a token's few hidden numbers take. In one piece it is 4x as much."""
    short, long = peak(pair, 256, CELLS, kind), peak(pair, 1024, CELLS, kind)
    assert long < short + 1024 * 1024 < 16 * 4 * CELLS
    assert peak(pair, 256, 10**9, kind) > 4 * short
