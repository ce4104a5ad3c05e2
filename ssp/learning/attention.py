"""Causal attention within segments of one line of tokens.

Owns the arithmetic between rotary positions and the output matrix. Promises that a token sees its own segment up to
itself, before that the whole segment which its own continues, and nothing else.
Refuses to know models and rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Segments:
    """Consecutive pieces of a line; piece i continues piece `parents[i]`, which continues none (-1: nor does i).

    `runs`: (how many, own tokens, tokens seen), for consecutive pieces of equal sizes. `seen` long [K]: the places of
    the tokens that each piece's last token sees, piece by piece; None where all are their own in order. `own`, `ends`:
    cumulative counts of own and of seen tokens, int32 [pieces + 1].
    """

    runs: tuple[tuple[int, int, int], ...]
    seen: Tensor | None
    own: Tensor
    ends: Tensor
    longest: tuple[int, int]

    @classmethod
    def of(cls, sizes: Sequence[int], parents: Sequence[int], device: torch.device) -> Segments:
        """Pieces of `sizes` tokens."""
        starts = [0]
        for size in sizes:
            starts.append(starts[-1] + size)
        before = [0 if parent < 0 else sizes[parent] for parent in parents]
        totals = [size + more for size, more in zip(sizes, before, strict=True)]
        seen = None
        if any(before):
            places = []
            for piece, parent in enumerate(parents):
                if parent >= 0:
                    places.append(torch.arange(starts[parent], starts[parent + 1]))
                places.append(torch.arange(starts[piece], starts[piece + 1]))
            seen = torch.cat(places).to(device)
        runs = [(len(list(run)), *key) for key, run in groupby(zip(sizes, totals, strict=True))]
        own, ends = (
            torch.tensor([0, *counts], dtype=torch.int32).cumsum(0, dtype=torch.int32).to(device)
            for counts in (sizes, totals)
        )
        return cls(tuple(runs), seen, own, ends, (max(sizes), max(totals)))  # type: ignore[arg-type]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: x [T, heads, D], cos and sin [T, 1, D / 2] → [T, heads, D], of the wider type."""
    out: Tensor = _Rotate.apply(x, cos, sin)
    return out


class _Rotate(torch.autograd.Function):
    """(a, b) → (a cos - b sin, b cos + a sin), halves of the last axis. Its own inverse's transpose: the gradient is a
    rotation by the opposite angle, so that nothing is kept."""

    @staticmethod
    def forward(ctx, x, cos, sin):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(cos, sin)
        ctx.dtype = x.dtype
        return _rotated(x, cos, sin, torch.promote_types(x.dtype, cos.dtype))

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        cos, sin = ctx.saved_tensors
        return _rotated(grad, cos, -sin, ctx.dtype), None, None


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, dtype: torch.dtype) -> Tensor:
    out = torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)
    (a, b), (first, second) = x.chunk(2, -1), out.chunk(2, -1)
    first.copy_(torch.addcmul(a * cos, b, sin, value=-1))
    second.copy_(torch.addcmul(b * cos, a, sin))
    return out


def attend(
    query: Tensor, key: Tensor, value: Tensor, segments: Segments, scale: float, window: int | None = None
) -> Tensor:
    """query [T, heads, D], key and value [T, kv heads, D] → [T, heads, D], of the values' type.

    `window`: a token sees at most so many, itself included. On a GPU in half precision one call of
    `torch.nn.attention.varlen`; else `scaled_dot_product_attention` for each run of pieces of equal size. On a CPU that is
    in float32, in which its kernel is faster than in bfloat16 (backward: twice).
    """
    dtype = value.dtype
    if query.is_cuda and dtype in HALF:
        return _varlen(query.to(dtype), *_seen(key.to(dtype), value, segments), segments, scale, window)
    with torch.autocast(query.device.type, enabled=False):
        if dtype in HALF:
            query, key, value = query.float(), key.float(), value.float()
        return _runs(query, *_seen(key, value, segments), segments, scale, window).to(dtype)


def _seen(key: Tensor, value: Tensor, segments: Segments) -> tuple[Tensor, Tensor]:
    """Keys and values piece by piece, those of a prompt before each piece that continues it."""
    if segments.seen is None:
        return key, value
    keys, values = (x.flatten(1).index_select(0, segments.seen).view(-1, *x.shape[1:]) for x in (key, value))
    return keys, values


def _runs(query: Tensor, key: Tensor, value: Tensor, segments: Segments, scale: float, window: int | None) -> Tensor:
    own = [count * size for count, size, _ in segments.runs]
    total = [count * size for count, _, size in segments.runs]
    out, parts = [], zip(query.split(own), key.split(total), value.split(total), segments.runs, strict=True)
    for q, k, v, (count, size, _) in parts:
        if size:
            q, k, v = (x.view(count, -1, *x.shape[1:]) for x in (q, k, v))
            out.append(_run(q, k, v, scale, window))
    return torch.cat(out)


def _varlen(query: Tensor, key: Tensor, value: Tensor, segments: Segments, scale: float, window: int | None) -> Tensor:
    """The causal mask of these kernels is aligned at the last token of queries and keys, as pieces need it."""
    from torch.nn.attention.varlen import varlen_attn

    out = varlen_attn(
        query,
        key,
        value,
        segments.own,
        segments.ends,
        *segments.longest,
        scale=scale,
        window_size=(-1 if window is None else window - 1, 0),
        enable_gqa=query.shape[1] > key.shape[1],
    )
    assert isinstance(out, Tensor)  # a pair only when more is asked for
    return out


def _run(query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None) -> Tensor:
    """Pieces of one size: query [n, own, heads, D], key and value [n, total, kv heads, D] → [n * own, heads, D].

    The causal mask of this function is aligned at the first token, so queries that continue a prompt get zeros in front.
    """
    (_, own, heads, dim), total = query.shape, key.shape[1]
    mask = None
    if window is not None and window < total:
        mask = torch.ones(total, total, dtype=torch.bool, device=query.device).tril().triu(1 - window)
    if own < total:
        query = F.pad(query, (0, 0, 0, 0, total - own, 0))
    mixed = F.scaled_dot_product_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        attn_mask=mask,
        is_causal=mask is None,
        scale=scale,
        enable_gqa=heads > key.shape[2],
    )
    if own < total:
        mixed = mixed[:, :, total - own :]
    return mixed.transpose(1, 2).reshape(-1, heads, dim)
