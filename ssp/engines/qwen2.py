"""The Qwen2 architecture for inference: weights packed for speed, one forward over a slot KV cache.

Owns the arithmetic. Promises the same function as the stock model (to float32 rounding): RMSNorm, rotary positions,
grouped-query attention with QKV bias, SwiGLU, tied or own output matrix. Three rewrites, exact in real numbers: norm
weights and 1/sqrt(head_dim) are multiplied into the matrices behind them, and "rotate half" is a second projection.
Refuses to know slots' owners, sampling, versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ssp.errors import InputError


@dataclass(frozen=True)
class Shape:
    """Sizes and constants of one model, from its HF configuration."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    context: int
    eps: float
    theta: float
    tied: bool

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Shape:
        """From an HF config as a mapping. InputError for anything that this forward does not compute."""
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        facts = {
            "model_type": (config.get("model_type"), "qwen2"),
            "hidden_act": (config.get("hidden_act", "silu"), "silu"),
            "rope type": (rope.get("rope_type", rope.get("type", "default")), "default"),
            "use_sliding_window": (bool(config.get("use_sliding_window", False)), False),
        }
        for name, (found, supported) in facts.items():
            if found != supported:
                raise InputError(
                    f"the torch engine computes Qwen2 models with {name} = {supported}",
                    f"{name} = {found}",
                    "use such a checkpoint, or another engine.kind",
                )
        needed = ("num_attention_heads", "hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size")
        for name in needed:
            if not isinstance(config.get(name), int):
                raise InputError(f"a model's configuration gives {name}", config.get(name), "save the model again")
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        return cls(
            layers=int(config["num_hidden_layers"]),
            hidden=hidden,
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or hidden // heads),
            mlp=int(config["intermediate_size"]),
            vocab=int(config["vocab_size"]),
            context=int(config.get("max_position_embeddings", 32768)),
            eps=float(config.get("rms_norm_eps", 1e-6)),
            theta=float(rope.get("rope_theta", config.get("rope_theta", 10000.0))),
            tied=bool(config.get("tie_word_embeddings", False)),
        )

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """HF parameter name → shape, for every parameter that `Weights` reads."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        one = {
            "input_layernorm.weight": (self.hidden,),
            "post_attention_layernorm.weight": (self.hidden,),
            "self_attn.q_proj.weight": (q, self.hidden),
            "self_attn.q_proj.bias": (q,),
            "self_attn.k_proj.weight": (kv, self.hidden),
            "self_attn.k_proj.bias": (kv,),
            "self_attn.v_proj.weight": (kv, self.hidden),
            "self_attn.v_proj.bias": (kv,),
            "self_attn.o_proj.weight": (self.hidden, q),
            "mlp.gate_proj.weight": (self.mlp, self.hidden),
            "mlp.up_proj.weight": (self.mlp, self.hidden),
            "mlp.down_proj.weight": (self.hidden, self.mlp),
        }
        table: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab, self.hidden)}
        for layer in range(self.layers):
            table |= {f"model.layers.{layer}.{name}": size for name, size in one.items()}
        table["model.norm.weight"] = (self.hidden,)
        if not self.tied:
            table["lm_head.weight"] = (self.vocab, self.hidden)
        return table


@dataclass
class _Layer:
    qkv: Tensor  # [hidden, 2 * (heads + kv_heads) * head_dim + kv_heads * head_dim]: q k, rotated q k, v
    qkv_bias: Tensor
    out: Tensor  # [heads * head_dim, hidden]
    gate_up: Tensor  # [hidden, 2 * mlp]
    down: Tensor  # [mlp, hidden]


@dataclass(frozen=True)
class Piece:
    """Ids to feed to one row, from position `start` on."""

    row: int
    start: int
    ids: list[int]

    @property
    def end(self) -> int:
        """The row's length afterwards."""
        return self.start + len(self.ids)


_Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(queries [n, kv_heads, heads / kv_heads, head_dim], a layer's keys, its values) → n * heads * head_dim values."""


def _unseen(positions: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """What to add to scores: -inf where a query at `positions[i]` must not see key j: [n, length]."""
    mask = torch.zeros(len(positions), length, dtype=dtype)
    return mask.masked_fill_(torch.arange(length) > positions[:, None], -torch.inf)


class Cache:
    """Keys and values, a layer each: [rows, kv_heads, length, head_dim]. It only grows; unused places are finite."""

    STEP = 64

    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        self.shape, self.dtype = shape, dtype
        self.rows = self.length = 0
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self._allocate(0, 0)

    def _allocate(self, rows: int, length: int) -> None:
        size = (rows, self.shape.kv_heads, length, self.shape.head_dim)
        old, self.keys, self.values = (self.keys, self.values), [], []
        for layer in range(self.shape.layers):
            for tensors, new in zip(old, (self.keys, self.values), strict=True):
                fresh = torch.zeros(size, dtype=self.dtype)
                if self.rows:
                    fresh[: self.rows, :, : self.length] = tensors[layer]
                new.append(fresh)
        self.rows, self.length = rows, length

    def reserve(self, rows: int, length: int) -> None:
        """Make room for at least that many rows and positions."""
        if rows <= self.rows and length <= self.length:
            return
        if length > self.length:
            length = -(-max(length, self.length * 5 // 4) // self.STEP) * self.STEP
        self._allocate(max(rows, self.rows), max(length, self.length))

    def swap(self, here: Tensor, there: Tensor, length: int) -> None:
        """Exchange rows `here[i]` and `there[i]` (int64, all distinct), positions below `length`."""
        for tensor in (*self.keys, *self.values):
            used = tensor[:, :, :length]
            kept = used[here]
            used[here] = used[there]
            used[there] = kept


class Qwen2:
    """Packed weights and the forward over a `Cache`."""

    def __init__(self, shape: Shape, weights: Mapping[str, np.ndarray], dtype: torch.dtype = torch.float32) -> None:
        self.shape, self.dtype = shape, dtype
        take = _Reader(shape, weights)
        self.embed = take("model.embed_tokens.weight").to(dtype)
        self.layers = [self._pack(take, layer) for layer in range(shape.layers)]
        head = take("model.embed_tokens.weight" if shape.tied else "lm_head.weight")
        self.head = (head * take("model.norm.weight")).t().contiguous().to(dtype)
        self._cos = self._sin = torch.zeros(0, shape.head_dim)

    def _pack(self, take: _Reader, index: int) -> _Layer:
        prefix, shape = f"model.layers.{index}.", self.shape
        before = take(prefix + "input_layernorm.weight")
        after = take(prefix + "post_attention_layernorm.weight")
        scale = shape.head_dim**-0.5
        q, k, v = (
            torch.cat(
                [
                    take(f"{prefix}self_attn.{x}_proj.weight") * before,
                    take(f"{prefix}self_attn.{x}_proj.bias")[:, None],
                ],
                1,
            )
            for x in "qkv"
        )
        qk = torch.cat([q * scale, k])
        first, second = qk.view(-1, 2, shape.head_dim // 2, shape.hidden + 1).unbind(1)
        rotated = torch.stack([-second, first], 1).view_as(qk)
        qkv = torch.cat([qk, rotated, v]).to(self.dtype)
        gate_up = torch.cat([take(prefix + "mlp.gate_proj.weight"), take(prefix + "mlp.up_proj.weight")]) * after
        return _Layer(
            qkv=qkv[:, :-1].t().contiguous(),
            qkv_bias=qkv[:, -1].contiguous(),
            out=take(prefix + "self_attn.o_proj.weight").t().contiguous().to(self.dtype),
            gate_up=gate_up.t().contiguous().to(self.dtype),
            down=take(prefix + "mlp.down_proj.weight").t().contiguous().to(self.dtype),
        )

    def _rotary(self, length: int) -> None:
        if len(self._cos) < length:
            half = torch.arange(0, self.shape.head_dim, 2, dtype=torch.float32) / self.shape.head_dim
            angle = torch.arange(length, dtype=torch.float32)[:, None] / self.shape.theta**half
            self._cos = torch.cat([angle.cos()] * 2, 1).to(self.dtype)
            self._sin = torch.cat([angle.sin()] * 2, 1).to(self.dtype)

    def _norm(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * (wide.square().mean(-1, keepdim=True) + self.shape.eps).rsqrt_()).to(self.dtype)

    def _forward(self, cache: Cache, ids: Tensor, rows: Tensor, positions: Tensor, attend: _Attend) -> Tensor:
        """Hidden states before the last norm, [n, hidden], of n tokens; fills their places in the cache.

        `ids`, `rows`, `positions`: int64 [n]. `attend` mixes the values of one layer for all n queries.
        """
        shape, n, d = self.shape, len(ids), self.shape.head_dim
        self._rotary(cache.length)
        x = self.embed.index_select(0, ids)
        cos, sin = self._cos.index_select(0, positions)[:, None], self._sin.index_select(0, positions)[:, None]
        heads = rows[:, None] * shape.kv_heads + torch.arange(shape.kv_heads)
        places = (heads * cache.length + positions[:, None]).view(-1)
        edges = [shape.heads + shape.kv_heads, shape.heads + shape.kv_heads, shape.kv_heads]
        for layer, keys, values in zip(self.layers, cache.keys, cache.values, strict=True):
            qkv = torch.addmm(layer.qkv_bias, self._norm(x), layer.qkv).view(n, -1, d)
            qk, rotated, v = qkv.split(edges, 1)
            qk = torch.addcmul(qk * cos, rotated, sin)
            keys.view(-1, d).index_copy_(0, places, qk[:, shape.heads :].reshape(-1, d))
            values.view(-1, d).index_copy_(0, places, v.reshape(-1, d))
            mixed = attend(qk[:, : shape.heads].view(n, shape.kv_heads, -1, d), keys, values)
            x = torch.addmm(x, mixed.view(n, shape.heads * d), layer.out)
            gate, up = (self._norm(x) @ layer.gate_up).chunk(2, 1)
            x = torch.addmm(x, F.silu(gate).mul_(up), layer.down)
        return x

    def decode(self, cache: Cache, ids: Tensor, positions: Tensor) -> Tensor:
        """One token for each of the rows 0 .. n-1: `ids`, `positions` int64 [n] → hidden states [n, hidden].

        All rows attend in one product over the longest row's length.
        """
        n, length = len(ids), int(positions.max()) + 1
        unseen = _unseen(positions, length, self.dtype)[:, None]

        def attend(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            kv, groups, d = q.shape[1:]
            k, v = (x.view(-1, cache.length, d)[: n * kv, :length] for x in (keys, values))
            scores = torch.bmm(q.reshape(n * kv, groups, d), k.transpose(1, 2))
            scores.view(n, kv * groups, length).add_(unseen)
            return torch.bmm(torch.softmax(scores, -1), v)

        return self._forward(cache, ids, torch.arange(n), positions, attend)

    def prefill(self, cache: Cache, pieces: Sequence[Piece]) -> Tensor:
        """Feed pieces, packed without padding; hidden state of each piece's last token, [len(pieces), hidden].

        A piece follows what its row holds, and earlier pieces of the same row in the same call.
        """
        counts = torch.tensor([len(piece.ids) for piece in pieces])
        rows = torch.tensor([piece.row for piece in pieces]).repeat_interleave(counts)
        positions = torch.cat([torch.arange(piece.start, piece.end) for piece in pieces])
        groups = self.shape.heads // self.shape.kv_heads
        masks = [
            _unseen(torch.arange(piece.start, piece.end), piece.end, self.dtype).repeat_interleave(groups, 0)
            for piece in pieces
        ]
        ends = counts.cumsum(0)
        cuts = [0, *(ends * groups).tolist()]

        def attend(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            n, kv, _, d = q.shape
            q = q.transpose(0, 1).reshape(kv, n * groups, d)
            mixed = torch.empty_like(q)
            for piece, mask, start, end in zip(pieces, masks, cuts, cuts[1:], strict=False):
                k, v = keys[piece.row, :, : piece.end], values[piece.row, :, : piece.end]
                scores = torch.baddbmm(mask, q[:, start:end], k.transpose(1, 2))
                mixed[:, start:end] = torch.bmm(torch.softmax(scores, -1), v)
            return mixed.view(kv, n, groups * d).transpose(0, 1).reshape(n, -1)

        ids = torch.tensor([id for piece in pieces for id in piece.ids])
        return self._forward(cache, ids, rows, positions, attend).index_select(0, ends - 1)

    def logits(self, x: Tensor) -> Tensor:
        """float32 [n, vocab] from hidden states [n, hidden]."""
        return (self._norm(x) @ self.head).float()


class _Reader:
    """Checked access to HF-named arrays; every read is a fresh float32 tensor."""

    def __init__(self, shape: Shape, weights: Mapping[str, np.ndarray]) -> None:
        self.sizes, self.weights = shape.parameters(), weights
        for name, size in self.sizes.items():
            found = tuple(weights[name].shape) if name in weights else "nothing"
            if found != size:
                raise InputError(
                    f"weights must hold {name} of shape {size}",
                    found,
                    "load weights of the model that the engine was made for",
                )

    def __call__(self, name: str) -> Tensor:
        return torch.from_numpy(np.array(self.weights[name], dtype=np.float32))
