"""Attention among the pieces of a line, which rows that begin alike share: who sees whom, and the
kernels that mix values, each with its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import accumulate, groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

HALF = (torch.float16, torch.bfloat16)
WIDE = 32
"""Numbers of a head from which a CPU attends in half precision; for smaller heads its kernel for
float32 is faster."""
QUERIES = 128
"""Queries of a piece at a time: keys behind the last of them are left out."""
SCORES = 2**24
"""Scores at a time in half precision on a CPU (32 MB), but all of so many queries with one head of
keys."""


@dataclass(frozen=True)
class Segments:
    """Consecutive pieces of a line. A piece may continue one other piece, its parent, which comes
    before it. A token sees its own piece up to itself, before that what the parent's last token
    sees, and nothing else.

    `runs`: (how many, own tokens, tokens seen) of consecutive pieces of equal sizes. `seen` long
    [K]: the places of the tokens that each piece's last token sees, piece by piece; None where all
    are their own in order. `own`, `ends`: cumulative counts of own and of seen tokens, int32
    [pieces + 1]. `longest`: most own tokens, most tokens seen."""

    runs: tuple[tuple[int, int, int], ...]
    seen: Tensor | None
    own: Tensor
    ends: Tensor
    longest: tuple[int, int]

    @classmethod
    def of(cls, sizes: Sequence[int], parents: Sequence[int], device: torch.device) -> Segments:
        """Pieces of `sizes` tokens; `parents`: the piece that each continues, -1 for none."""
        spans = torch.arange(sum(sizes)).split(list(sizes))
        places: list[Tensor] = []
        for parent, span in zip(parents, spans, strict=True):
            places.append(torch.cat([places[parent], span]) if parent >= 0 else span)
        totals = list(map(len, places))

        seen = None
        if totals != list(sizes):
            seen = torch.cat(places).to(device)
        runs = []
        for (size, total), equal in groupby(zip(sizes, totals, strict=True)):
            runs.append((len(list(equal)), size, total))
        own = list(accumulate(sizes, initial=0))
        ends = list(accumulate(totals, initial=0))
        return cls(
            tuple(runs),
            seen,
            torch.tensor(own, dtype=torch.int32, device=device),
            torch.tensor(ends, dtype=torch.int32, device=device),
            (max(sizes), max(totals)),
        )


def attend(query: Tensor, key: Tensor, value: Tensor, segments: Segments, scale: float) -> Tensor:
    """query [T, heads, D], key and value [T, kv heads, D] → [T, heads, D], of the values' type.

    On a GPU in half precision one call of `varlen_attn`. Else a call for each run of pieces of
    equal size: in half precision of `_Half`, where heads are wide enough, or in float32 of
    `scaled_dot_product_attention`."""
    dtype = value.dtype
    fast = query.is_cuda and dtype in HALF
    if fast:
        query = query.to(dtype)
        key = key.to(dtype)
    elif dtype in HALF and query.shape[-1] >= WIDE:
        query = query.to(dtype)
        # What all keys have in common, as a bias, changes no weight and would cost digits.
        key = (key - key.detach().mean(0)).to(dtype)
    elif dtype in HALF:
        query = query.float()
        key = key.float()
        value = value.float()
    if segments.seen is not None:  # the keys of a prompt before each piece that continues it
        shape = (-1, *key.shape[1:])
        key = key.flatten(1).index_select(0, segments.seen).view(shape)
        value = value.flatten(1).index_select(0, segments.seen).view(shape)
    if fast:
        return in_one_call(query, key, value, segments, scale)
    with torch.autocast(query.device.type, enabled=False):
        queries = query.split([count * size for count, size, _ in segments.runs])
        sizes = [count * total for count, _, total in segments.runs]
        keys = key.split(sizes)
        values = value.split(sizes)
        mixed = []
        for (count, size, _), q, k, v in zip(segments.runs, queries, keys, values, strict=True):
            if size:
                shape = (count, -1)
                q, k, v = q.unflatten(0, shape), k.unflatten(0, shape), v.unflatten(0, shape)
                mixed.append(_run(q, k, v, scale))
        return torch.cat(mixed).to(dtype)


def in_one_call(
    query: Tensor, key: Tensor, value: Tensor, segments: Segments, scale: float
) -> Tensor:
    """`attend` by torch's kernel for pieces of unequal sizes, all of one type of half precision;
    keys and values lie as the pieces see them."""
    from torch.nn.attention import varlen

    more: dict[str, Any] = {}
    if query.shape[1] > key.shape[1]:
        if "enable_gqa" in signature(varlen.varlen_attn).parameters:
            more = {"enable_gqa": True}
        else:  # torch before 2.12
            shared = query.shape[1] // key.shape[1]
            key = key.repeat_interleave(shared, 1)
            value = value.repeat_interleave(shared, 1)
    # The causal mask of these kernels is aligned at the last token of queries and keys, as pieces
    # need it.
    sizes = (segments.own, segments.ends, *segments.longest)
    out = varlen.varlen_attn(query, key, value, *sizes, scale=scale, window_size=(-1, 0), **more)
    assert isinstance(out, Tensor)  # a pair only when more is asked for
    return out


def _run(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Pieces of one size: query [n, own, heads, D], key and value [n, total, kv heads, D] → [n *
    own, heads, D]."""
    n, own, heads, dim = query.shape
    total = key.shape[1]
    mix = _in_float
    step = QUERIES
    if query.dtype in HALF:
        mix = _in_half
    elif own == total or query.is_cuda:
        # torch's causal kernel leaves later keys out by itself, and a GPU would start more kernels
        step = own
    # Laid out once: what a product would lay out for itself is kept for the backward pass.
    query = query.transpose(1, 2)
    key = key.transpose(1, 2).contiguous()
    value = value.transpose(1, 2).contiguous()
    parts = []
    for start in range(0, own, step):
        end = min(start + step, own)
        seen = total - own + end
        parts.append(mix(query[:, :, start:end], key[:, :, :seen], value[:, :, :seen], scale))
    return torch.cat(parts, 2).transpose(1, 2).reshape(n * own, heads, dim)


def _in_float(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Pieces of one size in float32: query [n, heads, own, D], key and value [n, kv heads, total,
    D] → as the query.

    The causal mask of torch's function is aligned at the first token, so queries that come behind
    other tokens bring their own."""
    own = query.shape[2]
    total = key.shape[2]
    mask = None
    if own < total:
        mask = query.new_ones(own, total, dtype=torch.bool).tril(total - own)
    grouped = query.shape[1] > key.shape[1]
    return F.scaled_dot_product_attention(
        query, key, value, mask, is_causal=mask is None, scale=scale, enable_gqa=grouped
    )


def _in_half(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Pieces of one size in half precision, as of `_in_float`."""
    own = query.shape[2]
    # Heads that share keys stand one behind the other in a row.
    keys = key.flatten(0, 1)
    values = value.flatten(0, 1)
    queries = (query * scale).reshape(len(keys), -1, query.shape[-1])
    most = max(1, SCORES // (queries.shape[1] * keys.shape[1]))
    parts = zip(queries.split(most), keys.split(most), values.split(most), strict=True)
    return torch.cat([_Half.apply(*part, own) for part in parts]).view(query.shape)


class _Half(torch.autograd.Function):
    """Queries [b, groups * own, D], keys and values [b, total, D] → as the queries: a query sees
    the keys up to its own, and the last `own` keys are those of the queries. Sums are float32's;
    scores and weights are rounded to half precision, and computed again in the backward pass."""

    @staticmethod
    def forward(ctx, query, key, value, own):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(query, key, value)
        ctx.own = own
        return torch.bmm(_weights(query, key, own), value)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        query, key, value = ctx.saved_tensors
        weights = _weights(query, key, ctx.own)
        of_value = torch.bmm(weights.transpose(1, 2), grad)
        of_weights = torch.bmm(grad, value.transpose(1, 2))
        of_scores = torch.ops.aten._softmax_backward_data(of_weights, weights, -1, weights.dtype)
        of_key = torch.bmm(of_scores.transpose(1, 2), query)
        return torch.bmm(of_scores, key), of_key, of_value, None


def _weights(query: Tensor, key: Tensor, own: int) -> Tensor:
    """The share of each key in what a query sees, [b, groups * own, total]."""
    scores = torch.bmm(query, key.transpose(1, 2))
    later = scores.new_full((own, own), -torch.inf).triu_(1)
    scores.unflatten(1, (-1, own))[..., -own:] += later
    return torch.softmax(scores, -1)
