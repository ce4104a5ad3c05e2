"""The memory plan against processes that were measured, and the embedded engine's weights and cache against its tensors."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ssp.base.shape import Shape
from ssp.capacity.memory import Model, engine
from ssp.config.role import RoleConfig
from ssp.engines.torch_engine import TorchEngine

BENCH = Path(__file__).parents[1] / "bench" / "process_memory.py"
ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("measured.json").read_text())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['kind']}-{row['model']}-{row['dtype']}")
def test_processes_take_what_is_planned(row: dict[str, Any]) -> None:
    spec = importlib.util.spec_from_file_location("process_memory", BENCH)
    assert spec is not None and spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    assert bench.plan(row) == pytest.approx(row["measured"], rel=0.15)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_an_embedded_engine_holds_what_is_planned(dtype: str, kind: str, tied: bool) -> None:
    """Weights to the biases, which are few; the cache to the byte, float32 whatever the weights are."""
    config = {
        "model_type": kind, "architectures": [f"{kind.capitalize()}ForCausalLM"], "num_attention_heads": 4,
        "num_key_value_heads": 2, "hidden_size": 64, "head_dim": 16, "num_hidden_layers": 3, "intermediate_size": 176,
        "vocab_size": 300, "tie_word_embeddings": tied, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "hidden_act": "silu",
    }  # fmt: skip
    made, shape = TorchEngine(config, dtype), Shape.of(config)
    made.load({name: np.zeros(size, np.float32) for name, size in shape.tensors().items()}, 1)
    held, cache = made.rows.model, made.rows.cache
    assert held is not None
    tensors = [held.embed, held.head, *(t for layer in held.layers for t in vars(layer).values() if t is not None)]
    block = RoleConfig()
    block.engine.dtype = dtype
    needs = {n.what: n.bytes for n in engine.engine(Model("m", shape.parameters, shape), block, 5).needs}
    assert sum(t.nbytes for t in tensors) == pytest.approx(needs["weights"], rel=0.02)
    cache.reserve(5, block.limits.longest)
    assert cache.length == block.limits.longest and cache.keys[0].dtype is torch.float32
    assert sum(t.nbytes for t in (*cache.keys, *cache.values)) == needs["KV cache"]
