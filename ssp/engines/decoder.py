"""The decoder of three families for inference: weights packed for speed, one forward over a KV
cache. Llama (llama3 rope scaling too), Qwen2 and Qwen3, with tied or own output matrix; anything
else is an InputError.

Promises the same function as the stock model (to float32 rounding), on a CPU or a GPU: every tensor
of a forward is made on the decoder's device. Rewrites, exact in real numbers: norm weights and
1/sqrt(head_dim) are multiplied into what comes behind them, and without norms of queries and keys
"rotate half" is a second projection."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ssp.base.errors import InputError, hold
from ssp.base.shape import FAMILIES, Shape, context
from ssp.engines.attention import (
    STEP,
    Attend,
    Piece,
    even,
    fused,
    one_by_one,
    side_by_side,
    starts,
    unseen_by,
)

CPU = torch.device("cpu")
_SAVE = "save the model again"
_NEXT = "use a Llama, Qwen2 or Qwen3 checkpoint, or another engine.kind"


@dataclass(frozen=True)
class Rope:
    """Rotary positions: base and, for llama3, how low frequencies are stretched (Llama 3.1, arXiv
    2407.21783)."""

    theta: float
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original: int = 8192

    def frequencies(self, head_dim: int) -> Tensor:
        """Radians a position, float32 [head_dim / 2], rounded as the model library rounds them:
        angles are frequencies times positions, so that another rounding grows with the position. A
        wave longer than `original` / `low` is `factor` times longer, one shorter than `original` /
        `high` as it was; the frequencies of those in between are a linear mix of both."""
        plain: Tensor = 1.0 / self.theta ** (
            torch.arange(0, head_dim, 2, dtype=torch.float32, device=CPU) / head_dim
        )
        if self.factor == 1.0:
            return plain
        turns = self.original * plain / (2 * math.pi)
        share = ((turns - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
        return plain * ((1 - share) / self.factor + share)


@dataclass(frozen=True, kw_only=True)
class Architecture(Shape):
    """A model that the engine computes: its sizes, and the constants of its norms and positions."""

    context: int
    eps: float
    rope: Rope

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Architecture:
        """From an HF config as a mapping. InputError for anything that the engine does not
        compute."""
        family = str(config.get("model_type"))
        rule = f"the torch engine computes {', '.join(FAMILIES.values())} models"
        hold(family in FAMILIES, rule, f"model_type = {family}", _NEXT)
        _check(config, FAMILIES[family])
        return cls(
            **vars(Shape.of(config)),
            context=context(config),
            eps=_number(config, "rms_norm_eps", 1e-6),
            rope=_rope(config, FAMILIES[family]),
        )


def _check(config: Mapping[str, Any], family: str) -> None:
    """InputError for a variant of the family that this forward would compute wrongly."""
    facts: dict[str, tuple[object, object]] = {
        "hidden_act": (config.get("hidden_act", "silu"), "silu"),
        "use_sliding_window": (bool(config.get("use_sliding_window", False)), False),
        "layer_types": (
            sorted(set(config.get("layer_types") or ["full_attention"])),
            ["full_attention"],
        ),
        "mlp_bias": (bool(config.get("mlp_bias", False)), False),
        "quantization_config": (config.get("quantization_config"), None),
    }
    if family != "Qwen2":
        facts["attention_bias"] = (bool(config.get("attention_bias", False)), False)
    for name, (found, supported) in facts.items():
        rule = f"the torch engine computes {family} models with {name} = {supported}"
        hold(found == supported, rule, f"{name} = {found}", _NEXT)
    needed = (
        "num_attention_heads",
        "hidden_size",
        "num_hidden_layers",
        "intermediate_size",
        "vocab_size",
    )
    for name in needed:
        if not isinstance(config.get(name), int):
            raise InputError(f"a model's configuration gives {name}", config.get(name), _SAVE)


def _rope(config: Mapping[str, Any], family: str) -> Rope:
    """From `rope_parameters`, or from `rope_theta` and `rope_scaling` as older tools write them."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    hold(
        isinstance(given, dict),
        "a model's configuration gives rope_parameters as an object",
        given,
        _SAVE,
    )
    kind = given.get("rope_type", given.get("type", "default"))
    theta, partial = (
        _number(given if name in given else config, name, default)
        for name, default in (("rope_theta", 10000.0), ("partial_rotary_factor", 1.0))
    )
    if kind not in ("default", "llama3") or partial != 1.0:
        rule = (
            f"the torch engine computes {family} models with rope type default or llama3 over whole"
            " heads"
        )
        raise InputError(rule, f"rope type = {kind}, partial_rotary_factor = {partial}", _NEXT)
    if kind == "default":
        return Rope(theta)
    try:
        factor, low, high = (
            float(given[key]) for key in ("factor", "low_freq_factor", "high_freq_factor")
        )
        return Rope(theta, factor, low, high, int(given["original_max_position_embeddings"]))
    except KeyError as error:
        raise InputError(f"rope type llama3 gives {error.args[0]}", dict(given), _SAVE) from error
    except (TypeError, ValueError) as error:
        raise InputError("rope type llama3 gives numbers", dict(given), _SAVE) from error


def _number(config: Mapping[str, Any], name: str, default: float) -> float:
    value = config.get(name, default)
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    hold(fits, f"a model's configuration gives {name} as a number", value, _SAVE)
    return float(value)


@dataclass
class _Layer:
    # [hidden, 2 * (heads + kv_heads) * head_dim + kv_heads * head_dim]: q k, rotated q k, v
    qkv: Tensor
    qkv_bias: Tensor
    # [heads + kv_heads, head_dim]; where there is one, qkv has no rotated part
    qk_norm: Tensor | None
    out: Tensor  # [heads * head_dim, hidden]
    gate_up: Tensor  # [hidden, 2 * mlp]
    down: Tensor  # [mlp, hidden]


class Cache:
    """Keys and values, a layer each: [rows, kv_heads, length, head_dim], in the type of the
    weights. It only grows, `grown` times so far; unused places are finite."""

    def __init__(self, shape: Architecture, dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.dtype, self.device = shape, dtype, device
        self.rows = self.length = self.grown = 0
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self._allocate(0, 0)

    def _allocate(self, rows: int, length: int) -> None:
        size = (rows, self.shape.kv_heads, length, self.shape.head_dim)
        old, self.keys, self.values = (self.keys, self.values), [], []
        for _ in range(self.shape.layers):
            for tensors, new in zip(old, (self.keys, self.values), strict=True):
                fresh = torch.zeros(size, dtype=self.dtype, device=self.device)
                if self.rows:
                    # and is gone: never two caches at a time
                    fresh[: self.rows, :, : self.length] = tensors.pop(0)
                new.append(fresh)
        self.rows, self.length, self.grown = rows, length, self.grown + 1

    def reserve(self, rows: int, length: int) -> None:
        """Make room for at least that many rows and positions."""
        if rows <= self.rows and length <= self.length:
            return
        if length > self.length:
            length = -(-max(length, min(self.length * 5 // 4, self.shape.context)) // STEP) * STEP
        self._allocate(max(rows, self.rows), max(length, self.length))

    def copy(self, here: Tensor, there: Tensor, length: int) -> None:
        """Make rows `there[i]` what `here[i]` (int64) were before, positions below `length`."""
        here, there = here.to(self.device), there.to(self.device)
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
        self.shape, self.dtype, self.device = shape, dtype, device
        # it plans each new shape anew, and the keys grow with every token
        if device.type == "cuda":
            torch.backends.cuda.enable_cudnn_sdp(False)
        for name, size in shape.tensors().items():
            if name not in weights or tuple(weights[name].shape) != size:
                found = tuple(weights[name].shape) if name in weights else "nothing"
                step = "load weights of the model that the engine was made for"
                raise InputError(f"weights must hold {name} of shape {size}", found, step)

        def take(name: str) -> Tensor:
            return torch.from_numpy(np.array(weights[name], dtype=np.float32)).to(device)

        self.embed = take("model.embed_tokens.weight").to(dtype)
        self.layers = [self._pack(take, layer) for layer in range(shape.layers)]
        head = take("model.embed_tokens.weight" if shape.tied else "lm_head.weight")
        self.head = (head * take("model.norm.weight")).t().contiguous().to(dtype)
        self._cos = self._sin = torch.zeros(0, shape.head_dim, device=device)

    def _pack(self, take: Callable[[str], Tensor], index: int) -> _Layer:
        prefix, shape = f"model.layers.{index}.", self.shape
        before = take(prefix + "input_layernorm.weight")
        after = take(prefix + "post_attention_layernorm.weight")
        scale = shape.head_dim**-0.5

        def project(x: str) -> Tensor:  # weight and bias
            weight = take(f"{prefix}self_attn.{x}_proj.weight") * before
            bias = (
                take(f"{prefix}self_attn.{x}_proj.bias")
                if shape.bias
                else weight.new_zeros(len(weight))
            )
            return torch.cat([weight, bias[:, None]], 1)

        q, k, v = map(project, "qkv")
        qk_norm = None
        # the rows' norms are needed before they turn, and take the scale of q away
        if shape.qk_norm:
            norms = [take(f"{prefix}self_attn.{x}_norm.weight") for x in "qk"]
            qk_norm = torch.stack([norms[0] * scale] * shape.heads + [norms[1]] * shape.kv_heads)
            qkv = torch.cat([q, k, v]).to(self.dtype)
        else:
            qk = torch.cat([q * scale, k])
            first, second = qk.view(-1, 2, shape.head_dim // 2, shape.hidden + 1).unbind(1)
            rotated = torch.stack([-second, first], 1).view_as(qk)
            qkv = torch.cat([qk, rotated, v]).to(self.dtype)
        gate_up = (
            torch.cat([take(prefix + "mlp.gate_proj.weight"), take(prefix + "mlp.up_proj.weight")])
            * after
        )
        return _Layer(
            qkv=qkv[:, :-1].t().contiguous(),
            qkv_bias=qkv[:, -1].contiguous(),
            qk_norm=qk_norm,
            out=take(prefix + "self_attn.o_proj.weight").t().contiguous().to(self.dtype),
            gate_up=gate_up.t().contiguous().to(self.dtype),
            down=take(prefix + "mlp.down_proj.weight").t().contiguous().to(self.dtype),
        )

    @torch.inference_mode()
    def become(self, other: Decoder) -> None:
        """Take the weights of another one of the same shape, in place."""
        own, new = (
            [one.embed, one.head, *(t for x in one.layers for t in vars(x).values())]
            for one in (self, other)
        )
        for mine, theirs in zip(own, new, strict=True):
            if mine is not None:
                mine.copy_(theirs)

    def _rotary(self, length: int) -> None:
        if len(self._cos) < length:
            places = torch.arange(length, dtype=torch.float32, device=CPU)[:, None]
            angle = (places * self.shape.rope.frequencies(self.shape.head_dim)).repeat(1, 2)
            self._cos, self._sin = angle.cos().to(self.device), angle.sin().to(self.device)

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
        shape, n, d = self.shape, len(ids), self.shape.head_dim
        self._rotary(cache.length)
        x = self.embed.index_select(0, ids)
        cos, sin = (
            self._cos.index_select(0, positions)[:, None],
            self._sin.index_select(0, positions)[:, None],
        )
        heads = rows[:, None] * shape.kv_heads + torch.arange(shape.kv_heads, device=self.device)
        places = (heads * cache.length + positions[:, None]).view(-1)
        for layer, keys, values in zip(self.layers, cache.keys, cache.values, strict=True):
            qk, v = (part.to(self.dtype) for part in self._project(layer, x, cos, sin))
            keys.view(-1, d).index_copy_(0, places, qk[:, shape.heads :].reshape(-1, d))
            values.view(-1, d).index_copy_(0, places, v.reshape(-1, d))
            mixed = attend(
                qk[:, : shape.heads].view(n, shape.kv_heads, -1, d), keys, values
            ).reshape(n, -1)
            if ends is not None and layer is self.layers[-1]:
                x, mixed = x.index_select(0, ends), mixed.index_select(0, ends)
            x = torch.addmm(x, mixed, layer.out)
            gate, up = (self._unit(x) @ layer.gate_up).chunk(2, 1)
            x = torch.addmm(x, F.silu(gate).mul_(up), layer.down)
        return x

    def _project(self, layer: _Layer, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys with their rotary positions, float32 [n, heads + kv_heads, head_dim],
        and values."""
        shape, n, both = self.shape, len(x), self.shape.heads + self.shape.kv_heads
        qkv = (
            torch.addmm(layer.qkv_bias, self._unit(x), layer.qkv)
            .float()
            .view(n, -1, shape.head_dim)
        )
        if layer.qk_norm is None:
            qk, rotated, v = qkv.split([both, both, shape.kv_heads], 1)
        else:
            qk, v = qkv.split([both, shape.kv_heads], 1)
            qk = self._unit(qk) * layer.qk_norm
            first, second = qk.chunk(2, 2)
            rotated = torch.cat([-second, first], 2)
        return torch.addcmul(qk * cos, rotated, sin), v

    def decode(
        self, cache: Cache, ids: Tensor, positions: Tensor, length: int, rows: Tensor | None = None
    ) -> Tensor:
        """One token for each of the rows 0 .. n-1: `ids`, `positions` int64 [n] → hidden states [n,
        hidden]. All attend in one product over the longest row's `length`. `rows`, int64 [n]: where
        keys and values go instead."""
        n, length = len(ids), length if self.device.type == "cpu" else even(length)
        unseen = unseen_by(positions, length)[:, None].to(self.dtype)

        def attend(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            kv, groups, d = q.shape[1:]
            k, v = (x.view(-1, cache.length, d)[: n * kv, :length] for x in (keys, values))
            if self.dtype != torch.float32:
                return fused(q, keys[:n, :, :length], values[:n, :, :length], unseen[:, None])
            scores = torch.bmm(q.reshape(n * kv, groups, d), k.transpose(1, 2))
            scores.view(n, kv * groups, length).add_(unseen)
            return torch.bmm(torch.softmax(scores, -1), v)

        rows = torch.arange(n, device=self.device) if rows is None else rows
        return self._forward(cache, ids, rows, positions, attend)

    def prefill(self, cache: Cache, pieces: Sequence[Piece]) -> Tensor:
        """Feed pieces, packed without padding; hidden state of the last token of each that is
        `last`. A piece follows what its row holds, and earlier pieces of the same row in the same
        call."""
        told = (
            [id for piece in pieces for id in piece.ids],
            [piece.row for piece in pieces for _ in piece.ids],
            [place for piece in pieces for place in range(piece.start, piece.end)],
            [end - 1 for piece, end in zip(pieces, starts(pieces)[1:], strict=True) if piece.last],
        )
        # one transfer
        whole = torch.tensor([number for numbers in told for number in numbers], device=self.device)
        ids, rows, positions, ends = whole.split([len(numbers) for numbers in told])
        together = one_by_one if self.device.type == "cpu" else side_by_side
        attend = together(
            pieces, rows, positions, self.shape.heads // self.shape.kv_heads, self.dtype
        )
        return self._forward(cache, ids, rows, positions, attend, ends)

    def logits(self, x: Tensor) -> Tensor:
        """float32 [n, vocab] from hidden states [n, hidden]."""
        return (self._unit(x) @ self.head).float()
