"""The families of models that the embedded engine computes, read from a Hugging Face configuration.

Owns what tells them apart: sizes, biases, norms of queries and keys, rotary frequencies, names of parameters.
Promises Llama (llama3 rope scaling too), Qwen2 and Qwen3, with tied or own output matrix; anything else is an InputError.
Refuses to compute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ssp.errors import InputError

FAMILIES = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}
_NEXT = "use a Llama, Qwen2 or Qwen3 checkpoint, or another engine.kind"


@dataclass(frozen=True)
class Rope:
    """Rotary positions: base and, for llama3, how low frequencies are stretched (Llama 3.1, arXiv 2407.21783)."""

    theta: float
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original: int = 8192

    def periods(self, head_dim: int) -> Tensor:
        """Positions a radian, float32 [head_dim / 2].

        A wave longer than `original` / `low` is `factor` times longer, one shorter than `original` / `high` as it was;
        the frequencies of those in between are a linear mix of both.
        """
        plain: Tensor = self.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        if self.factor == 1.0:
            return plain
        turns = self.original / (2 * math.pi * plain)
        share = ((turns - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
        return plain / ((1 - share) / self.factor + share)


@dataclass(frozen=True)
class Shape:
    """Sizes and constants of one model. `bias`: of the q, k, v projections; `qk_norm`: RMSNorm of each query and key."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    context: int
    eps: float
    rope: Rope
    tied: bool
    bias: bool
    qk_norm: bool

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Shape:
        """From an HF config as a mapping. InputError for anything that the engine does not compute."""
        family = config.get("model_type")
        if family not in FAMILIES:
            raise InputError(
                f"the torch engine computes {', '.join(FAMILIES.values())} models", f"model_type = {family}", _NEXT
            )
        _check(config, FAMILIES[family])
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        return cls(
            layers=int(config["num_hidden_layers"]),
            hidden=hidden,
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or (128 if family == "qwen3" else hidden // heads)),
            mlp=int(config["intermediate_size"]),
            vocab=int(config["vocab_size"]),
            context=int(config.get("max_position_embeddings", 2048 if family == "llama" else 32768)),
            eps=float(config.get("rms_norm_eps", 1e-6)),
            rope=_rope(config, FAMILIES[family]),
            tied=bool(config.get("tie_word_embeddings", False)),
            bias=family == "qwen2",
            qk_norm=family == "qwen3",
        )

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """HF parameter name → shape, for every parameter that the engine reads."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        one: dict[str, tuple[int, ...]] = {
            "input_layernorm.weight": (self.hidden,),
            "post_attention_layernorm.weight": (self.hidden,),
            "self_attn.o_proj.weight": (self.hidden, q),
            "mlp.gate_proj.weight": (self.mlp, self.hidden),
            "mlp.up_proj.weight": (self.mlp, self.hidden),
            "mlp.down_proj.weight": (self.hidden, self.mlp),
        }
        for name, size in (("q", q), ("k", kv), ("v", kv)):
            one[f"self_attn.{name}_proj.weight"] = (size, self.hidden)
            if self.bias:
                one[f"self_attn.{name}_proj.bias"] = (size,)
            if self.qk_norm and name != "v":
                one[f"self_attn.{name}_norm.weight"] = (self.head_dim,)
        table: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab, self.hidden)}
        for layer in range(self.layers):
            table |= {f"model.layers.{layer}.{name}": size for name, size in one.items()}
        table["model.norm.weight"] = (self.hidden,)
        if not self.tied:
            table["lm_head.weight"] = (self.vocab, self.hidden)
        return table


def _check(config: Mapping[str, Any], family: str) -> None:
    """InputError for a variant of the family that this forward would compute wrongly."""
    facts: dict[str, tuple[object, object]] = {
        "hidden_act": (config.get("hidden_act", "silu"), "silu"),
        "use_sliding_window": (bool(config.get("use_sliding_window", False)), False),
        "layer_types": (sorted(set(config.get("layer_types") or ["full_attention"])), ["full_attention"]),
        "mlp_bias": (bool(config.get("mlp_bias", False)), False),
        "quantization_config": (config.get("quantization_config"), None),
    }
    if family != "Qwen2":
        facts["attention_bias"] = (bool(config.get("attention_bias", False)), False)
    for name, (found, supported) in facts.items():
        if found != supported:
            raise InputError(
                f"the torch engine computes {family} models with {name} = {supported}", f"{name} = {found}", _NEXT
            )
    needed = ("num_attention_heads", "hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size")
    for name in needed:
        if not isinstance(config.get(name), int):
            raise InputError(f"a model's configuration gives {name}", config.get(name), "save the model again")


def _rope(config: Mapping[str, Any], family: str) -> Rope:
    """From `rope_parameters`, or from `rope_theta` and `rope_scaling` as older tools write them."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = given.get("rope_type", given.get("type", "default"))
    theta = float(given.get("rope_theta", config.get("rope_theta", 10000.0)))
    partial = float(given.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)))
    if kind not in ("default", "llama3") or partial != 1.0:
        raise InputError(
            f"the torch engine computes {family} models with rope type default or llama3 over whole heads",
            f"rope type = {kind}, partial_rotary_factor = {partial}",
            _NEXT,
        )
    if kind == "default":
        return Rope(theta)
    try:
        return Rope(
            theta,
            float(given["factor"]),
            float(given["low_freq_factor"]),
            float(given["high_freq_factor"]),
            int(given["original_max_position_embeddings"]),
        )
    except KeyError as error:
        raise InputError(f"rope type llama3 gives {error.args[0]}", dict(given), "save the model again") from error
