"""The table of model families that are known here, a decoder's sizes, and the counts that follow.

Everything else asks this table: the embedded engine, packing, GGUF files and the memory plan. What
a family computes in its own way stands in `ssp/engines/decoder.py` and `ssp/learning/packing.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ModelFamily:
    """What sets a family apart from Llama. `name`: as its makers write it. `context`: tokens, where
    a configuration does not say. `head_dim`: likewise (0: the hidden size, shared by the heads).
    `bias`: queries, keys and values always have one. `qk_norm`: as in `Shape`."""

    name: str
    context: int
    head_dim: int = 0
    bias: bool = False
    qk_norm: bool = False


FAMILIES = {
    "llama": ModelFamily("Llama", context=2048),
    "qwen2": ModelFamily("Qwen2", context=32768, bias=True),
    "qwen3": ModelFamily("Qwen3", context=32768, head_dim=128, qk_norm=True),
}
"""The families, by `model_type` of their configuration."""
NAMES = ", ".join(family.name for family in FAMILIES.values())
"""As a message names them."""


def context(config: Mapping[str, Any]) -> int:
    """Tokens that a model was made for, by its `config.json`; 0: it does not say."""
    own = config.get("max_position_embeddings", config.get("n_positions"))
    if not isinstance(own, int):
        family = FAMILIES.get(str(config.get("model_type")))
        return 0 if family is None else family.context
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    if not isinstance(rope, dict):
        return own
    kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor")
    if kind not in ("yarn", "linear", "dynamic") or not isinstance(factor, (int, float)):
        return own
    before = rope.get("original_max_position_embeddings", own) if kind == "yarn" else own
    return max(own, int(before * factor))


@dataclass(frozen=True)
class Shape:
    """Grouped-query attention, gated MLP, RMSNorm. `bias`: of the q, k, v projections; `qk_norm`:
    RMSNorm of each query and key; `tied`: the output matrix is that of the embeddings."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    tied: bool
    bias: bool = False
    qk_norm: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Shape:
        """From a Hugging Face `config.json`. KeyError where it lacks a size, or is of a family that
        is not known."""
        family = FAMILIES[config["model_type"]]
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        head_dim = config.get("head_dim") or family.head_dim or hidden // heads
        return Shape(
            layers=int(config["num_hidden_layers"]),
            hidden=hidden,
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(head_dim),
            mlp=int(config["intermediate_size"]),
            vocab=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", False)),
            bias=family.bias or bool(config.get("attention_bias", False)),
            qk_norm=family.qk_norm,
        )

    @classmethod
    def known(cls, config: Mapping[str, Any]) -> Shape | None:
        """As `of`; None where the config describes another kind of model."""
        try:
            return cls.of(config)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
            return None

    @property
    def query(self) -> int:
        """Numbers in a token's queries."""
        return self.heads * self.head_dim

    @property
    def key(self) -> int:
        """Numbers in a token's keys, and in its values."""
        return self.kv_heads * self.head_dim

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        """Linear layers of one block: name → (inputs, outputs)."""
        h, q, kv, mlp = self.hidden, self.query, self.key, self.mlp
        attention = {"q_proj": (h, q), "k_proj": (h, kv), "v_proj": (h, kv), "o_proj": (q, h)}
        return attention | {"gate_proj": (h, mlp), "up_proj": (h, mlp), "down_proj": (mlp, h)}

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name of each parameter as Hugging Face writes it → its sizes; a tied output matrix is not
        among them."""
        one: dict[str, tuple[int, ...]] = {}
        """Those of a block."""
        one["input_layernorm.weight"] = one["post_attention_layernorm.weight"] = (self.hidden,)
        for name, (inputs, outputs) in self.linears.items():
            attention = name in ("q_proj", "k_proj", "v_proj", "o_proj")
            where = f"self_attn.{name}" if attention else f"mlp.{name}"
            one[f"{where}.weight"] = (outputs, inputs)
            if self.bias and attention and name != "o_proj":
                one[f"{where}.bias"] = (outputs,)
        if self.qk_norm:
            one["self_attn.q_norm.weight"] = one["self_attn.k_norm.weight"] = (self.head_dim,)
        table: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab, self.hidden)}
        for layer in range(self.layers):
            table |= {f"model.layers.{layer}.{name}": size for name, size in one.items()}
        table["model.norm.weight"] = (self.hidden,)
        if not self.tied:
            table["lm_head.weight"] = (self.vocab, self.hidden)
        return table

    @property
    def parameters(self) -> int:
        """All weights; a tied output matrix counts once."""
        return sum(math.prod(size) for size in self.tensors().values())

    @property
    def kv_numbers(self) -> int:
        """Numbers that one token puts into the KV cache."""
        return 2 * self.layers * self.key

    def adapter(self, rank: int) -> int:
        """Parameters of a LoRA of that rank on all linear layers of the blocks: rank x (inputs +
        outputs) for each."""
        return self.layers * rank * sum(map(sum, self.linears.values()))
