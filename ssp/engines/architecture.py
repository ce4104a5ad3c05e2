"""Which model a configuration describes: sizes, norms and rotary positions, as far as the torch
engine computes them. Anything else is an InputError."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ssp.base.errors import InputError, hold
from ssp.base.shape import FAMILIES, NAMES, ModelFamily, Shape, context

CPU = torch.device("cpu")
_SIZES = (
    "num_attention_heads",
    "hidden_size",
    "num_hidden_layers",
    "intermediate_size",
    "vocab_size",
)
_SAVE = "save the model again"
_OTHER = f"use a checkpoint of one of {NAMES}, or another engine.kind"


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
        angles are frequencies times positions, so that another rounding grows with the position.

        A wave longer than `original` / `low` becomes `factor` times longer; one shorter than
        `original` / `high` stays. The frequencies in between are a linear mix of both."""
        even = torch.arange(0, head_dim, 2, dtype=torch.float32, device=CPU)
        plain: Tensor = 1.0 / self.theta ** (even / head_dim)
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
        """Read an HF config, a mapping. InputError for anything that the engine does not
        compute."""
        kind = str(config.get("model_type"))
        rule = f"the torch engine computes {NAMES} models"
        hold(kind in FAMILIES, rule, f"model_type = {kind}", _OTHER)
        family = FAMILIES[kind]
        _check(config, family)
        return cls(
            **vars(Shape.of(config)),
            context=context(config),
            eps=_number(config, "rms_norm_eps", 1e-6),
            rope=_rope(config, family.name),
        )


def _check(config: Mapping[str, Any], family: ModelFamily) -> None:
    """InputError for a variant of the family that this forward would compute wrongly."""
    name = family.name
    _check_fact(name, "hidden_act", config.get("hidden_act", "silu"), "silu")
    sliding = bool(config.get("use_sliding_window", False))
    _check_fact(name, "use_sliding_window", sliding, False)
    layers = config.get("layer_types") or ["full_attention"]
    _check_fact(name, "layer_types", sorted(set(layers)), ["full_attention"])
    _check_fact(name, "mlp_bias", bool(config.get("mlp_bias", False)), False)
    _check_fact(name, "quantization_config", config.get("quantization_config"), None)
    if not family.bias:
        _check_fact(name, "attention_bias", bool(config.get("attention_bias", False)), False)
    for size in _SIZES:
        if not isinstance(config.get(size), int):
            raise InputError(f"a model's configuration gives {size}", config.get(size), _SAVE)


def _check_fact(family: str, name: str, value: object, supported: object) -> None:
    rule = f"the torch engine computes {family} models with {name} = {supported}"
    hold(value == supported, rule, f"{name} = {value}", _OTHER)


def _rope(config: Mapping[str, Any], family: str) -> Rope:
    """Read `rope_parameters`, or `rope_theta` and `rope_scaling` as older tools write them."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rule = "a model's configuration gives rope_parameters as an object"
    hold(isinstance(given, dict), rule, given, _SAVE)
    kind = given.get("rope_type", given.get("type", "default"))
    both = {**config, **given}
    theta = _number(both, "rope_theta", 10000.0)
    partial = _number(both, "partial_rotary_factor", 1.0)
    if kind not in ("default", "llama3") or partial != 1.0:
        kinds = "rope type default or llama3 over whole heads"
        rule = f"the torch engine computes {family} models with {kinds}"
        raise InputError(rule, f"rope type = {kind}, partial_rotary_factor = {partial}", _OTHER)
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
        raise InputError(f"rope type llama3 gives {error.args[0]}", dict(given), _SAVE) from error
    except (TypeError, ValueError) as error:
        raise InputError("rope type llama3 gives numbers", dict(given), _SAVE) from error


def _number(config: Mapping[str, Any], name: str, default: float) -> float:
    value = config.get(name, default)
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    hold(fits, f"a model's configuration gives {name} as a number", value, _SAVE)
    return float(value)
