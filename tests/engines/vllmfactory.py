"""Real vLLM engines for tests: whether they can be made here, and small models that both builds run.

Importing vLLM takes ten seconds or more, the first engine of a process some more, each further one less than one.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from suite_models import network
from transformers import PreTrainedModel

from ssp.config.role import EngineConfig

needs_vllm = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None,
    reason="vLLM is not installed (.venv/.ssp-no-vllm says why)",
)


def model(seed: int, **changes: Any) -> PreTrainedModel:
    """A random Qwen2 whose heads are 32 wide, as vLLM's CPU attention needs; its distributions are far from uniform."""
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "initializer_range": 0.3}
    return network("qwen2-tied", seed, **{**heads, **changes})


@contextmanager
def engine(folder: Path, **changes: Any) -> Iterator[Any]:
    """A vLLM engine of the model in `folder`, stopped afterwards."""
    from ssp.engines.vllm.engine import VllmEngine

    made = VllmEngine(folder, EngineConfig(**{"kind": "vllm", **changes}))
    try:
        yield made
    finally:
        made.stop()
