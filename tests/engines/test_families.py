"""What the embedded engine reads from a configuration, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from suite_models import LLAMA3, network
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding

from ssp.base.errors import InputError
from ssp.engines.architecture import Architecture, Rope

LLAMA: dict[str, Any] = network("llama-own").config.to_dict()


def test_frequencies_are_those_of_transformers() -> None:
    theirs = LlamaRotaryEmbedding(network("llama-own").config).inv_freq
    rope = Architecture.of(LLAMA).rope
    assert torch.allclose(rope.frequencies(32), theirs, rtol=3e-7)
    assert not torch.allclose(Rope(rope.theta).frequencies(32), theirs, rtol=0.1), "the scaling matters here"
    plain = network("qwen2-tied").config
    own = Architecture.of(plain.to_dict())
    assert torch.equal(own.rope.frequencies(own.head_dim), Qwen2RotaryEmbedding(plain).inv_freq), "to the last bit"


def test_older_configurations_say_the_same() -> None:
    """Before transformers 5: the base beside the scaling, whose kind is `type` in the oldest."""
    older = {key: value for key, value in LLAMA.items() if key != "rope_parameters"}
    scaling = {key: value for key, value in LLAMA3.items() if key not in ("rope_theta", "rope_type")}
    for kind in ("rope_type", "type"):
        assert Architecture.of(
            older | {"rope_theta": 500.0, "rope_scaling": scaling | {kind: "llama3"}}
        ) == Architecture.of(LLAMA)
    assert Architecture.of(older | {"rope_theta": 500.0, "rope_scaling": None}).rope == Rope(500.0)


@pytest.mark.covers("SR-11")
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "mistral"}, "mistral"),
        ({"model_type": None}, "None"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "yarn"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, "low_freq_factor"),
        ({"hidden_size": None}, "hidden_size"),
    ],
)
def test_what_it_does_not_compute_is_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        Architecture.of(LLAMA | change)
