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
import torch
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from ssp.config.role import EngineConfig

VOCAB = 61
needs_vllm = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None,
    reason="vLLM is not installed (.venv/.ssp-no-vllm says why)",
)


def model(seed: int, tied: bool = True, **changes: Any) -> Qwen2ForCausalLM:
    """A random Qwen2 whose heads are 32 wide, as vLLM's CPU attention needs; its distributions are far from uniform."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 512,
        "initializer_range": 0.3,
    }
    config = Qwen2Config(**{**shape, **changes}, tie_word_embeddings=tied, bos_token_id=None, eos_token_id=None)
    made = Qwen2ForCausalLM(config).eval()
    for name, parameter in made.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
    return made


def arrays(net: PreTrainedModel) -> dict[str, Any]:
    """The weights as a learner publishes them."""
    tied = net.config.tie_word_embeddings
    return {k: v.detach().numpy().copy() for k, v in net.state_dict().items() if not (tied and k == "lm_head.weight")}


def saved(net: PreTrainedModel, folder: Path) -> Path:
    """The model as a folder."""
    net.save_pretrained(folder)
    return folder


@contextmanager
def engine(folder: Path, **changes: Any) -> Iterator[Any]:
    """A vLLM engine of the model in `folder`, stopped afterwards."""
    from ssp.engines.vllm.engine import VllmEngine

    made = VllmEngine(folder, EngineConfig(**{"kind": "vllm", "kv_mb": 32, **changes}))
    try:
        yield made
    finally:
        made.stop()
