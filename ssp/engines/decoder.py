"""The decoder of `ssp.base.shape.FAMILIES` for inference: weights packed for speed, one forward
over a KV cache, with tied or own output matrix.

Promises the same function as the stock model (to float32 rounding), on a CPU or a GPU: every tensor
of a forward is made on the decoder's device. A rewrite, exact in real numbers: norm weights and
1/sqrt(head_dim) are multiplied into what comes behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ssp.base.errors import InputError
from ssp.base.products import Matrix
from ssp.engines.architecture import CPU, Architecture
from ssp.engines.attention import (
    Attend,
    Piece,
    even,
    fused,
    one_by_one,
    side_by_side,
    stepped,
    unseen_by,
)


@dataclass
class _Layer:
    """The packed weights of one layer."""

    qkv: Matrix  # to (heads + 2 * kv_heads) * head_dim
    qk_norm: Tensor | None  # [heads + kv_heads, head_dim]
    out: Matrix
    gate_up: Matrix  # to 2 * mlp
    down: Matrix


class Cache:
    """Keys and values of each layer, [rows, kv_heads, length, head_dim], in the type of the
    weights. It only grows, `grown` times so far; unused places are finite. On a CPU the length is
    the last axis of the keys in memory: their product with few queries is twice as fast then."""

    def __init__(self, shape: Architecture, dtype: torch.dtype, device: torch.device) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.rows = self.length = self.grown = 0
        empty = self._zeros(0, shape.kv_heads, 0, shape.head_dim)
        self.keys = [empty] * shape.layers
        self.values = [empty] * shape.layers

    def reserve(self, rows: int, length: int) -> None:
        """Make room for at least that many rows and positions."""
        if rows <= self.rows and length <= self.length:
            return
        if length > self.length:
            # a fourth more, so that a cache which grows token by token is seldom copied
            length = stepped(max(length, min(self.length * 5 // 4, self.shape.context)))
        rows = max(rows, self.rows)
        length = max(length, self.length)
        kv, d = self.shape.kv_heads, self.shape.head_dim
        for tensors in (self.keys, self.values):
            # one layer after the other, so that there are never two caches at a time
            for layer in range(self.shape.layers):
                if tensors is self.keys and self.device.type == "cpu":
                    larger = self._zeros(rows, kv, d, length).transpose(2, 3)
                else:
                    larger = self._zeros(rows, kv, length, d)
                larger[: self.rows, :, : self.length] = tensors[layer]
                tensors[layer] = larger
        self.rows = rows
        self.length = length
        self.grown = self.grown + 1

    def _zeros(self, *size: int) -> Tensor:
        return torch.zeros(size, dtype=self.dtype, device=self.device)

    def copy(self, here: Tensor, there: Tensor, length: int) -> None:
        """Make rows `there[i]` what `here[i]` (int64) were before, positions below `length`."""
        here = here.to(self.device)
        there = there.to(self.device)
        for tensor in (*self.keys, *self.values):
            used = tensor[:, :, :length]
            used[there] = used[here]


class Decoder:
    """Packed weights and the forward over a `Cache`."""

    def __init__(
        self,
        shape: Architecture,
        weights: Mapping[str, np.ndarray],
        dtype: torch.dtype = torch.float32,
        device: torch.device = CPU,
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device
        if device.type == "cuda":
            # cuDNN plans each new shape anew, and the keys grow with every token
            torch.backends.cuda.enable_cudnn_sdp(False)
        for name, size in shape.tensors().items():
            given = tuple(weights[name].shape) if name in weights else "nothing"
            if given != size:
                step = "load weights of the model that the engine was made for"
                raise InputError(f"weights must hold {name} of shape {size}", given, step)

        def take(name: str) -> Tensor:
            return torch.from_numpy(np.array(weights[name], dtype=np.float32)).to(device)

        self.embed = take("model.embed_tokens.weight").to(dtype)
        self.layers = [self._pack(take, layer) for layer in range(shape.layers)]
        head = take("model.embed_tokens.weight" if shape.tied else "lm_head.weight")
        self.head = Matrix((head * take("model.norm.weight")).to(dtype))
        self._cos = self._sin = torch.zeros(0, shape.head_dim // 2, device=device)

    def _pack(self, take: Callable[[str], Tensor], index: int) -> _Layer:
        shape = self.shape
        prefix = f"model.layers.{index}."
        before = take(prefix + "input_layernorm.weight")
        after = take(prefix + "post_attention_layernorm.weight")
        scale = shape.head_dim**-0.5

        def packed(matrix: Tensor) -> Matrix:
            return Matrix(matrix.to(self.dtype))

        def project(x: str) -> Tensor:
            """Weight, and bias as the last column."""
            weight = take(f"{prefix}self_attn.{x}_proj.weight") * before
            bias = weight.new_zeros(len(weight))
            if shape.bias:
                bias = take(f"{prefix}self_attn.{x}_proj.bias")
            return torch.cat([weight, bias[:, None]], 1)

        q, k, v = map(project, "qkv")
        qk_norm = None
        if shape.qk_norm:
            # the norms of queries and keys come before their rotation, and undo a scale of q
            q_norm = take(prefix + "self_attn.q_norm.weight") * scale
            k_norm = take(prefix + "self_attn.k_norm.weight")
            qk_norm = torch.stack([q_norm] * shape.heads + [k_norm] * shape.kv_heads)
        else:
            q = q * scale
        qkv = torch.cat([q, k, v]).to(self.dtype)
        out = take(prefix + "self_attn.o_proj.weight")
        gate = take(prefix + "mlp.gate_proj.weight")
        up = take(prefix + "mlp.up_proj.weight")
        down = take(prefix + "mlp.down_proj.weight")
        return _Layer(
            qkv=Matrix(qkv[:, :-1].contiguous(), qkv[:, -1].contiguous()),
            qk_norm=qk_norm,
            out=packed(out),
            gate_up=packed(torch.cat([gate, up]) * after),
            down=packed(down),
        )

    @torch.inference_mode()
    def become(self, other: Decoder) -> None:
        """Take the weights of another one of the same shape, in place."""
        self.embed.copy_(other.embed)
        self.head.become(other.head)
        for own, new in zip(self.layers, other.layers, strict=True):
            if own.qk_norm is not None and new.qk_norm is not None:
                own.qk_norm.copy_(new.qk_norm)
            own.qkv.become(new.qkv)
            own.out.become(new.out)
            own.gate_up.become(new.gate_up)
            own.down.become(new.down)

    def _unit(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], eps=self.shape.eps)

    def _forward(
        self,
        cache: Cache,
        ids: Tensor,
        rows: Tensor,
        positions: Tensor,
        attend: Attend,
        ends: Tensor | None = None,
    ) -> Tensor:
        """Hidden states before the last norm, [n, hidden], of n tokens; fills their places in the
        cache. `ids`, `rows`, `positions`: int64 [n]. `attend` mixes the values of one layer for all
        n queries. With `ends`, int64 [m], the last layer gives these of the n only, [m, hidden]:
        nobody reads what it makes of the others."""
        shape = self.shape
        n, d = len(ids), shape.head_dim
        if len(self._cos) < cache.length:
            every = torch.arange(cache.length, dtype=torch.float32, device=CPU)[:, None]
            angles = every * shape.rope.frequencies(d)
            self._cos = angles.cos().to(self.device)
            self._sin = angles.sin().to(self.device)
        cos = self._cos.index_select(0, positions)[:, None]
        sin = self._sin.index_select(0, positions)[:, None]

        x = self.embed.index_select(0, ids)
        for layer, keys, values in zip(self.layers, cache.keys, cache.values, strict=True):
            qk, v = self._project(layer, x, cos, sin)
            q, k = qk.to(self.dtype).split([shape.heads, shape.kv_heads], 1)
            keys[rows, :, positions] = k
            values[rows, :, positions] = v
            mixed = attend(q.view(n, shape.kv_heads, -1, d), keys, values).reshape(n, -1)
            if ends is not None and layer is self.layers[-1]:
                x = x.index_select(0, ends)
                mixed = mixed.index_select(0, ends)
            x = layer.out.added(x, mixed)
            gate, up = layer.gate_up(self._unit(x)).chunk(2, 1)
            x = layer.down.added(x, F.silu(gate).mul_(up))
        return x

    def _project(self, layer: _Layer, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys with their rotary positions, float32 [n, heads + kv_heads, head_dim],
        and values. `cos`, `sin`: [n, 1, head_dim / 2]."""
        shape = self.shape
        qkv = layer.qkv(self._unit(x)).view(len(x), -1, shape.head_dim)
        qk, v = qkv.split([shape.heads + shape.kv_heads, shape.kv_heads], 1)
        qk = qk.float()
        if layer.qk_norm is not None:
            qk = self._unit(qk) * layer.qk_norm
        rotated = torch.empty_like(qk)
        first, second = qk.chunk(2, 2)
        torch.addcmul(first * cos, second, sin, value=-1, out=rotated[:, :, : shape.head_dim // 2])
        torch.addcmul(second * cos, first, sin, out=rotated[:, :, shape.head_dim // 2 :])
        return rotated, v

    def decode(
        self, cache: Cache, ids: Tensor, positions: Tensor, length: int, rows: Tensor | None = None
    ) -> Tensor:
        """One token for each of the rows 0 .. n-1: `ids`, `positions` int64 [n] → hidden states [n,
        hidden]. All attend in one product over the longest row's `length`. `rows`, int64 [n]: where
        keys and values go instead."""
        n = len(ids)
        length = even(length, self.dtype, self.device)
        unseen = unseen_by(positions, length)[:, None].to(self.dtype)

        def attend(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            if self.dtype != torch.float32 and self.device.type != "cpu":
                return fused(q, keys[:n, :, :length], values[:n, :, :length], unseen[:, None])
            kv, groups, d = q.shape[1:]
            k = keys.view(-1, cache.length, d)[: n * kv, :length]
            v = values.view(-1, cache.length, d)[: n * kv, :length]
            scores = torch.bmm(q.reshape(n * kv, groups, d), k.transpose(1, 2))
            scores.view(n, kv * groups, length).add_(unseen)
            return torch.bmm(torch.softmax(scores, -1), v)

        if rows is None:
            rows = torch.arange(n, device=self.device)
        return self._forward(cache, ids, rows, positions, attend)

    def prefill(self, cache: Cache, pieces: Sequence[Piece]) -> Tensor:
        """Feed pieces, packed without padding; returns the hidden state of the last token of each
        piece that is `last`. A piece follows what its row holds, and earlier pieces of the same row
        in the same call."""
        numbers = [list[int]() for _ in range(4)]
        all_ids, all_rows, all_places, all_ends = numbers
        for piece in pieces:
            all_ids += piece.ids
            all_rows += [piece.row] * len(piece.ids)
            all_places += range(piece.start, piece.end)
            if piece.last:
                all_ends.append(len(all_ids) - 1)
        # one transfer
        whole = torch.tensor([*chain(*numbers)], device=self.device)
        ids, rows, positions, ends = whole.split([len(part) for part in numbers])
        groups = self.shape.heads // self.shape.kv_heads
        together = one_by_one if self.device.type == "cpu" else side_by_side
        attend = together(pieces, rows, positions, groups, self.dtype)
        return self._forward(cache, ids, rows, positions, attend, ends)

    def logits(self, x: Tensor) -> Tensor:
        """float32 [n, vocab] from hidden states [n, hidden]."""
        return self.head(self._unit(x)).float()
