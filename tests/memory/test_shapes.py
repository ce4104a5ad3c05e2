"""Sizes of models: published counts, model folders, guesses that say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from ssp.base.errors import InputError
from ssp.base.shape import Shape
from ssp.capacity.memory.shapes import PUBLIC, find
from ssp.config.role import LoraConfig
from ssp.learning import lora

FAMILIES: dict[str, Any] = {
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "llama": (LlamaConfig, LlamaForCausalLM),
}
SMALL = {
    "vocab_size": 300, "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip
PUBLISHED = {
    "Qwen2.5-0.5B": 494_032_768, "Qwen2.5-1.5B": 1_543_714_304, "Qwen2.5-3B": 3_085_938_688,
    "Qwen2.5-7B": 7_615_616_512, "Qwen2.5-14B": 14_770_033_664, "Qwen2.5-32B": 32_763_876_352,
    "Qwen2.5-72B": 72_706_203_648, "Qwen3-0.6B": 596_049_920, "Qwen3-1.7B": 1_720_574_976, "Qwen3-4B": 4_022_468_096,
    "Qwen3-8B": 8_190_735_360, "Qwen3-14B": 14_768_307_200, "Qwen3-32B": 32_762_123_264, "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496, "Llama-3.2-1B": 1_235_814_400, "Llama-3.2-3B": 3_212_749_824,
}  # fmt: skip
"""Numbers in the published safetensors files; a tied output matrix is stored once."""


def test_published_models_have_their_published_size() -> None:
    assert {name: shape.parameters for name, shape in PUBLIC.items()} == PUBLISHED


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
def test_a_shape_counts_what_transformers_makes(family: str, tied: bool) -> None:
    config, model = FAMILIES[family]
    made = model(config(**SMALL, tie_word_embeddings=tied))
    shape = Shape.of(made.config.to_dict())
    assert shape.parameters == sum(parameter.numel() for parameter in made.parameters())
    chosen = LoraConfig(rank=3)
    lora.put_on(made, chosen)
    adapters = sum(parameter.numel() for parameter in made.parameters() if parameter.requires_grad)
    assert shape.adapter(3, chosen.targets) == adapters
    with pytest.raises(InputError, match="lm_head"):
        shape.adapter(3, ["q_proj", "lm_head"])


def test_the_cache_of_a_token() -> None:
    assert PUBLIC["Qwen2.5-7B"].kv_numbers * 2 == 57_344  # bytes in bfloat16: 2 x 28 layers x 4 heads x 128
    assert PUBLIC["Llama-3.1-8B"].kv_numbers * 2 == 131_072


@pytest.mark.parametrize(
    ("name", "public"),
    [("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5-7B"), ("meta-llama/Meta-Llama-3.1-8B", "Llama-3.1-8B")],
)
def test_public_models_are_known_by_name(name: str, public: str) -> None:
    found = find(name)
    assert found.shape == PUBLIC[public] and found.parameters == PUBLISHED[public] and "published" in found.note


def test_of_other_models_nothing_is_guessed() -> None:
    secret = find("Org/Secret-7B")
    assert (secret.parameters, secret.shape) == (0, None) and "its size not known" in secret.note


def test_a_folder_counts_its_files(tmp_path: Path) -> None:
    config = Qwen2Config(**SMALL).to_dict()
    (tmp_path / "config.json").write_text(json.dumps(config))
    by_config = find(str(tmp_path))
    assert by_config.parameters == Shape.of(config).parameters and by_config.note == ""
    save_file({"a": np.zeros((3, 7), np.float16), "b": np.zeros(5, np.float16)}, tmp_path / "model.safetensors")
    assert find(str(tmp_path)).parameters == 26 and find(str(tmp_path)).narrow and not by_config.narrow
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"config\.json of a model is JSON"):
        find(str(tmp_path))


def test_our_own_policy_is_the_packaged_one() -> None:
    own = find("coldstart")
    assert own.shape is not None and own.parameters == own.shape.parameters > 100_000
