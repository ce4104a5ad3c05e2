"""Rows side by side: the padded forward's numbers and gradients, no row seen by another, every model family."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.attention.varlen
import torch.nn.functional as F
from solo import compare
from transformers import AutoConfig, AutoModelForCausalLM

from ssp.base.errors import InputError
from ssp.base.shape import FAMILIES, NAMES
from ssp.learning import attention
from ssp.learning.attention import Segments, attend, in_one_call
from ssp.learning.batch import lengths, micro_batches
from ssp.learning.forward import score
from ssp.learning.packing import enable_packing, lay_out, packs
from ssp.learning.prefixes import LEAST, shared

VOCAB = 50
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
    "max_position_embeddings": 128,
}
SCALED = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
MODELS = {
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 8},
    "llama": {"rope_parameters": SCALED},
}


def network(family, **more):
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **SIZES, **more))


def pair(name):
    """The same weights, padded and packed."""
    torch.manual_seed(0)
    padded = network(name, **MODELS[name]).eval()
    packed = copy.deepcopy(padded)
    enable_packing(packed)
    return padded, packed


def ragged(rows=9, longest=37, seed=0):
    """ids and mask [rows, longest]: rows 1 to 3 share a prompt, 4 and 5 another, row 6 has nothing to predict, row 7 is
    as long as row 8, row 2 predicts one token only."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCAB, (rows, longest), generator=generator)
    mask = torch.rand(rows, longest, generator=generator) < 0.3
    ids[2:4, :6], ids[5, :9] = ids[1, :6], ids[4, :9]
    for row, (first, end) in enumerate([(3, 37), (6, 20), (6, 7), (6, 33), (9, 25), (9, 25), (1, 1), (2, 14), (5, 14)]):
        mask[row, :first] = mask[row, end:] = False
        mask[row, first] = mask[row, end - 1] = end > first
    return ids, mask


def outcome(model, ids, mask, reference=None, compare=None, cells=2**26):
    """Scores and the gradient of a loss that weighs every token and every term differently."""
    model.zero_grad()
    scores = logprobs, entropy, kl = score(
        model, ids, mask, 0.7, compare, reference=reference, entropy_gradient=True, cells=cells
    )
    weights = torch.linspace(-1, 1, len(logprobs))
    loss = (weights * logprobs).sum() + 0.3 * (weights * entropy).sum()
    if compare is not None:
        loss = loss + 0.2 * (weights * kl).sum()
    (loss / len(weights)).backward()
    return scores, {name: p.grad.clone() for name, p in model.named_parameters()}


def same(one, other):
    for mine, theirs in zip(one[0], other[0], strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=0)
    for name, grad in one[1].items():
        torch.testing.assert_close(other[1][name], grad, atol=1e-6, rtol=1e-6)


@pytest.mark.covers("SR-10", "SR-11")
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("kind", ["", "k3", "full", "topk_reverse"])
def test_packed_is_padded(name, kind):
    padded, packed = pair(name)
    ids, mask = ragged()
    against = dict.fromkeys((padded, packed), ())
    if kind:
        reference = copy.deepcopy(padded).requires_grad_(False)
        for parameter in reference.parameters():
            parameter.add_(0.004)
        twin = copy.deepcopy(reference)
        enable_packing(twin)
        against = {padded: (reference, compare(kind)), packed: (twin, compare(kind))}
    same(outcome(padded, ids, mask, *against[padded]), outcome(packed, ids, mask, *against[packed]))


def test_in_bfloat16_what_several_products_read_is_kept_once():
    """Of the whole line: two inputs of products and what attention gave in each layer, of the last one's the first."""
    _, packed = pair("llama")
    ids, mask = ragged()
    line, kept = len(lay_out(ids, mask).ids), set()

    def keep(tensor):
        if tensor.dtype is torch.bfloat16 and tensor.shape == (line, SIZES["hidden_size"]):
            kept.add(tensor.data_ptr())
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", torch.bfloat16):
        logprobs, _, _ = score(packed, ids, mask, 1.0)
    assert len(kept) == 3 + 3 + 1 and logprobs.requires_grad


@pytest.mark.covers("SR-10")
@pytest.mark.parametrize("name", MODELS)
def test_rows_do_not_see_each_other(name):
    _, packed = pair(name)
    ids, mask = ragged()
    with torch.no_grad():
        before = score(packed, ids, mask, 1.0)[0]
        for row in range(len(ids)):
            other = ids.clone()
            other[row] = (ids[row] + 1) % VOCAB
            after = score(packed, other, mask, 1.0)[0]
            owner = torch.arange(len(ids))[:, None].expand_as(mask)[mask]
            torch.testing.assert_close(after[owner != row], before[owner != row], atol=2e-6, rtol=0)
            assert not mask[row].any() or not torch.allclose(after[owner == row], before[owner == row], atol=1e-3)


def test_what_follows_the_last_predicted_token_is_not_computed():
    ids, mask = ragged()
    line = lay_out(ids, mask)
    sizes = lengths(mask)
    shared = 2 * 6 + 9  # prompts that are there once, not three times and twice
    assert len(line.ids) == int((sizes[sizes > 0] - 1).sum()) - shared == len(line.positions)
    assert len(line.asked) == int(mask.sum())
    # places that are asked for hold the token before the predicted one, at its position
    rows, positions = mask.nonzero().unbind(1)
    assert line.ids[line.asked].tolist() == ids[rows, positions - 1].tolist()
    assert line.positions[line.asked].tolist() == (positions - 1).tolist()


@pytest.mark.covers("SR-10")
@pytest.mark.parametrize("name", ["qwen2", "llama"])
@pytest.mark.parametrize("side", ["padded", "packed"])
def test_checkpointing_changes_no_gradient(name, side, monkeypatch):
    model = dict(zip(("padded", "packed"), pair(name), strict=True))[side]
    ids, mask = ragged()
    plain = outcome(model, ids, mask)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for layer in model.base_model.layers:
        layer.training = True
    calls = []
    inner = model.base_model.layers[0].mlp.forward
    monkeypatch.setattr(model.base_model.layers[0].mlp, "forward", lambda x: calls.append(1) or inner(x))
    same(plain, outcome(model, ids, mask))
    assert len(calls) == 2  # forward, and again in the backward pass


@pytest.mark.covers("SR-10")
def test_mixed_precision_stays_near():
    """autocast in bfloat16: float32 weights and gradients, log-probs within what eight bits of mantissa allow."""
    for name in MODELS:
        padded, packed = pair(name)
        ids, mask = ragged()
        with torch.no_grad():
            exact = score(padded, ids, mask, 1.0)[0]
        with torch.autocast("cpu", torch.bfloat16):
            rough = score(packed, ids, mask, 1.0)[0]
        assert rough.dtype == torch.float32
        rough.sum().backward()
        assert all(p.grad.dtype == torch.float32 for p in packed.parameters())
        assert 0 < float((rough.detach() - exact).abs().max()) < 0.3


def test_models_that_it_cannot_compute_are_refused():
    other = network("mistral")
    with pytest.raises(InputError, match=NAMES):
        enable_packing(other)
    for odd in ({"attention_dropout": 0.1}, {"use_sliding_window": True, "sliding_window": 5}):
        with pytest.raises(InputError, match="dropout or sliding windows"):
            enable_packing(network("qwen2", **odd))
    assert not packs(other)


@pytest.mark.parametrize("queries", [attention.QUERIES, 1])
def test_attention_by_hand(queries, monkeypatch):
    """Pieces of 3, 2 and 2 tokens; the second and third continue the first."""
    monkeypatch.setattr(attention, "QUERIES", queries)
    torch.manual_seed(0)
    query, key, value = torch.randn(7, 4, 8), torch.randn(7, 2, 8), torch.randn(7, 2, 8)
    segments = Segments.of([3, 2, 2], [-1, 0, 0], torch.device("cpu"))
    assert segments.runs == ((1, 3, 3), (2, 2, 5)) and segments.longest == (3, 5)
    assert segments.own.tolist() == [0, 3, 5, 7] and segments.ends.tolist() == [0, 3, 8, 13]
    got = attend(query, key, value, segments, 0.5)
    sees = {0: [0], 1: [0, 1], 2: [0, 1, 2], 3: [0, 1, 2, 3], 4: [0, 1, 2, 3, 4], 5: [0, 1, 2, 5], 6: [0, 1, 2, 5, 6]}
    for token, places in sees.items():
        for head in range(4):
            weight = torch.softmax(0.5 * key[places, head // 2] @ query[token, head], 0)
            torch.testing.assert_close(got[token, head], weight @ value[places, head // 2], atol=1e-6, rtol=0)


@pytest.mark.parametrize("most", [attention.SCORES, 1])
@pytest.mark.parametrize("queries", [attention.QUERIES, 8])
@pytest.mark.parametrize("parents", [[-1, -1, -1], [-1, 0, 0], [-1, 0, 1]], ids=["rows", "two of one", "a chain"])
@pytest.mark.parametrize("common", [0.0, 50.0])
def test_wide_heads_attend_in_half_precision(parents, queries, most, common, monkeypatch):
    """As float32 does, forward and backward, to bfloat16's rounding; also where keys have much in common."""
    monkeypatch.setattr(attention, "QUERIES", queries)
    monkeypatch.setattr(attention, "SCORES", most)
    torch.manual_seed(0)
    segments = Segments.of([11, 30, 30], parents, torch.device("cpu"))
    query, key, value, grad = [torch.randn(71, heads, attention.WIDE) for heads in (6, 2, 2, 6)]
    key += common
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        given = [query.requires_grad_(), key.requires_grad_(), value.to(dtype).requires_grad_()]
        mixed = attend(*given, segments, attention.WIDE**-0.5)
        assert mixed.dtype is dtype
        of_given = torch.autograd.grad(mixed, given, grad.to(dtype))
        results.append([mixed, *of_given])
    for exact, rounded in zip(*results, strict=True):
        assert (rounded.float() - exact).norm() < 0.02 * exact.norm()


def test_narrow_heads_attend_in_float32_and_what_comes_is_float32():
    torch.manual_seed(0)
    segments = Segments.of([5, 4], [-1, 0], torch.device("cpu"))
    query, key, value = [torch.randn(9, heads, 8).bfloat16() for heads in (4, 2, 2)]
    exact = attend(query.float(), key.float(), value.float(), segments, 0.4)
    assert torch.equal(attend(query, key, value, segments, 0.4), exact.bfloat16())
    assert torch.equal(attend(query.float(), key.float(), value, segments, 0.4), exact.bfloat16())


@pytest.mark.parametrize("groups", [{"enable_gqa": True}, {}], ids=["torch 2.13", "torch 2.11"])
def test_one_call_for_all_pieces_says_the_same(monkeypatch, groups):
    """With what torch's kernel promises in its place: sequences of q and k, the causal mask aligned at their last tokens."""
    torch.manual_seed(0)
    query, key, value = torch.randn(7, 4, 8), torch.randn(7, 2, 8), torch.randn(7, 2, 8)
    segments = Segments.of([3, 2, 2], [-1, 0, 0], torch.device("cpu"))

    def kernel(q, k, v, own, ends, most_q, most_k, *, scale, window_size, **more):
        assert more == groups and window_size == (-1, 0) and (most_q, most_k) == (3, 5)
        out = []
        for a, b, c, d in zip(own, own[1:], ends, ends[1:], strict=False):
            (x, y, z), m, n = (t.transpose(0, 1) for t in (q[a:b], k[c:d], v[c:d])), int(b - a), int(d - c)
            seen = torch.ones(m, n, dtype=torch.bool).tril(n - m)
            mixed = F.scaled_dot_product_attention(x, y, z, seen, scale=scale, enable_gqa="enable_gqa" in more)
            out.append(mixed.transpose(0, 1))
        return torch.cat(out)

    def newer(q, k, v, own, ends, most_q, most_k, *, scale, window_size, enable_gqa):
        return kernel(q, k, v, own, ends, most_q, most_k, scale=scale, window_size=window_size, enable_gqa=enable_gqa)

    def older(q, k, v, own, ends, most_q, most_k, *, scale, window_size):
        return kernel(q, k, v, own, ends, most_q, most_k, scale=scale, window_size=window_size)

    monkeypatch.setattr(torch.nn.attention.varlen, "varlen_attn", newer if groups else older)
    seen = [x.index_select(0, segments.seen) for x in (key, value)]
    got = in_one_call(query, *seen, segments, 0.5)
    torch.testing.assert_close(got, attend(query, key, value, segments, 0.5), atol=1e-6, rtol=0)


@pytest.mark.parametrize("budget", [1, 30, 45, 100, 10_000])
def test_packed_micro_batches_are_few_and_even(budget):
    sizes = torch.tensor([7, 30, 12, 12, 3, 25, 9, 12])
    rows = torch.tensor([0, 1, 2, 3, 5, 6, 7])
    ids = torch.arange(8 * 30).view(8, 30)  # no two rows begin alike
    parts = micro_batches(sizes, rows, budget, ids)
    assert torch.cat(parts).tolist() == rows.tolist()
    totals = [int(sizes[part].sum()) for part in parts]
    assert all(total <= budget or len(part) == 1 for total, part in zip(totals, parts, strict=True))
    expected = {1: [7, 30, 12, 12, 25, 9, 12], 45: [37, 24, 34, 12], 100: [49, 58], 10_000: [107]}
    assert totals == expected.get(budget, totals)
    assert micro_batches(sizes, rows[:0], budget, ids) == []


def test_the_gpu_kernel_is_called_as_it_wants_to_be():
    """Without a GPU: shapes and arguments alone, on tensors that only pretend to be there."""
    with torch._subclasses.FakeTensorMode():
        query, key, value = (torch.empty(7, heads, 16, device="cuda", dtype=torch.bfloat16) for heads in (4, 2, 2))
        places, counts = (torch.empty(n, dtype=d, device="cuda") for n, d in ((13, torch.long), (4, torch.int32)))
        segments = Segments(((1, 3, 3), (2, 2, 5)), places, counts, counts, (3, 5))
        out = attend(query, key, value, segments, 0.5)
        assert out.shape == (7, 4, 16) and out.dtype == torch.bfloat16 and out.is_cuda


@pytest.mark.parametrize("name", MODELS)
def test_prompts_that_differ_in_one_token_are_two(name):
    """In the last one, or in the first; each row predicts the same tokens."""
    padded, packed = pair(name)
    ids = torch.arange(1, 13).repeat(3, 1)
    ids[1, 5], ids[2, 0] = 40, 41
    mask = torch.zeros(ids.shape, dtype=torch.bool)
    mask[:, 6:] = True
    want, got = (score(model, ids, mask, 0.7)[0] for model in (padded, packed))
    torch.testing.assert_close(want, got, atol=1e-5, rtol=0)
    own = want.view(3, 6)
    assert not torch.allclose(own[0], own[1], atol=1e-3) and not torch.allclose(own[0], own[2], atol=1e-3)


def grown(rows, longest, seed):
    """Rows that branch: each keeps a part of an earlier one, at random; masks and ends too are drawn."""
    generator = torch.Generator().manual_seed(seed)

    def below(most):
        return int(torch.randint(most, (1,), generator=generator))

    ids = torch.randint(0, VOCAB, (rows, longest), generator=generator)
    for row in range(1, rows):
        kept = below(longest)
        ids[row, :kept] = ids[below(row), :kept]
    mask = torch.rand(rows, longest, generator=generator) < 0.2
    for row in range(rows):
        mask[row, 1 + below(longest) :] = False
    mask[0, 1] = True
    return ids, mask


@pytest.mark.covers("SR-10")
@pytest.mark.parametrize("seed", range(6))
def test_what_rows_share_is_computed_once_and_changes_nothing(seed):
    """A tree of rows: log-probs, entropies and gradients are the padded ones, and the line holds each beginning once."""
    padded, packed = pair("llama")
    ids, mask = grown(12, 40, seed)
    same(outcome(padded, ids, mask), outcome(packed, ids, mask))
    line = lay_out(ids, mask)
    ends = lengths(mask) - 1
    seen = {
        tuple(row[:place]) for row, end in zip(ids.tolist(), ends.tolist(), strict=True) for place in range(1, end + 1)
    }
    least = sum(place < LEAST for place in map(len, seen))
    assert len(seen) <= len(line.ids) <= len(seen) + least * len(ids)
    assert len(line.ids) < int(ends.clamp(min=0).sum()), "some rows begin alike"


def test_rows_that_begin_alike_stand_together_and_count_once():
    """Rows 0, 3 and 5 begin alike, and of these 3 and 5 for longer; three tokens in common are not worth it."""
    ids = torch.arange(6 * 20).view(6, 20)
    ids[3, :8] = ids[0, :8]
    ids[5, :12] = ids[3, :12]
    ids[4, :3] = ids[1, :3]
    alike = shared(ids, torch.tensor([20, 10, 10, 20, 10, 15]))
    assert list(zip(alike.rows, alike.common, strict=True)) == [(0, 0), (3, 8), (5, 12), (1, 0), (2, 0), (4, 0)]
    sizes = torch.tensor([20, 10, 10, 20, 10, 15])
    parts = micro_batches(sizes, torch.arange(6), 36, ids)
    assert [part.tolist() for part in parts] == [[0, 3, 5], [1, 2, 4]], "20 + 12 + 3 tokens, and 30"
    assert shared(ids, torch.zeros(6, dtype=torch.long)).common == [0] * 6


def test_rows_that_share_nearly_all_are_not_all_in_one_micro_batch():
    """Their keys are laid before each row, which takes memory however few tokens are computed."""
    ids = torch.zeros(40, 30, dtype=torch.long)
    ids[:, -1] = torch.arange(40)
    parts = micro_batches(torch.full((40,), 30), torch.arange(40), 100, ids)
    assert sorted(torch.cat(parts).tolist()) == list(range(40))
    assert [len(part) for part in parts] == [10] * 4, "at most 13 have four budgets together"


def test_rows_that_each_go_on_where_the_one_before_ends_share_all_of_it():
    """More of them than Python nests calls."""
    rows, first = 1100, LEAST + 1
    ids = torch.arange(rows + first + 1).repeat(rows, 1)
    mask = torch.zeros(ids.shape, dtype=torch.bool)
    mask[torch.arange(rows), torch.arange(rows) + first + 1] = True
    line = lay_out(ids, mask)
    assert len(line.ids) == rows + first and len(line.asked) == rows
