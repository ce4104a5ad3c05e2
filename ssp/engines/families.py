"""The families of models that the embedded engine computes: Llama (llama3 rope scaling too), Qwen2 and Qwen3, with tied or
own output matrix. Anything else is an InputError."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ssp.base.errors import InputError
from ssp.base.shape import Shape

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

    def frequencies(self, head_dim: int) -> Tensor:
        """Radians a position, float32 [head_dim / 2], rounded as the model library rounds them: angles are frequencies times
        positions, so that another rounding grows with the position.

        A wave longer than `original` / `low` is `factor` times longer, one shorter than `original` / `high` as it was;
        the frequencies of those in between are a linear mix of both.
        """
        plain: Tensor = 1.0 / self.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
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
        """From an HF config as a mapping. InputError for anything that the engine does not compute."""
        family = config.get("model_type")
        if family not in FAMILIES:
            rule = f"the torch engine computes {', '.join(FAMILIES.values())} models"
            raise InputError(rule, f"model_type = {family}", _NEXT)
        _check(config, FAMILIES[family])
        return cls(
            **vars(Shape.of(config)),
            context=int(config.get("max_position_embeddings", 2048 if family == "llama" else 32768)),
            eps=float(config.get("rms_norm_eps", 1e-6)),
            rope=_rope(config, FAMILIES[family]),
        )


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
            rule = f"the torch engine computes {family} models with {name} = {supported}"
            raise InputError(rule, f"{name} = {found}", _NEXT)
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
        rule = f"the torch engine computes {family} models with rope type default or llama3 over whole heads"
        raise InputError(rule, f"rope type = {kind}, partial_rotary_factor = {partial}", _NEXT)
    if kind == "default":
        return Rope(theta)
    try:
        factor, low, high = (float(given[key]) for key in ("factor", "low_freq_factor", "high_freq_factor"))
        return Rope(theta, factor, low, high, int(given["original_max_position_embeddings"]))
    except KeyError as error:
        raise InputError(f"rope type llama3 gives {error.args[0]}", dict(given), "save the model again") from error
