"""What runs inside vLLM's worker, whose process may be another one: reload weights, measure memory.

Promises that after `reload` every layer computes with the new weights, a tied output head too.
Refuses to know requests and versions. Each function's `wrapper` is vLLM's worker wrapper, as
`collective_rpc` passes it."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ssp.base.errors import Fault

RESIDUAL_MB = 2048
"""Most that a sleeping engine may still hold on each of its GPUs: the learner plans with the
rest."""
_MB = 2**20


def reload(wrapper: Any, source: Mapping[str, np.ndarray] | str) -> None:
    """Replace the weights. `source`: arrays by Hugging Face name, or the path of a safetensors file
    that holds them."""
    if isinstance(source, str):
        from safetensors.numpy import load_file

        source = load_file(source)
    # Copies: arrays that came through the object store are read-only.
    tensors = ((name, torch.tensor(array)) for name, array in source.items())
    wrapper.worker.reload_weights(weights_iterator=tensors)
    repair_head(wrapper.worker.model_runner.model)


def repair_head(model: Any) -> None:
    """Pack a tied output head anew. On a CPU vLLM computes it from a packed copy, which its reload
    leaves as it was: without an error, the engine would go on with the old head (vLLM 0.32)."""
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
    from vllm.platforms import current_platform

    if current_platform.is_cpu() and getattr(model.config, "tie_word_embeddings", False):
        dispatch_cpu_unquantized_gemm(model.lm_head, remove_weight=False)


def clear_cache(wrapper: Any) -> None:
    """Fill the KV cache with zeros: what is not a number would outlive its masking."""
    for cache in wrapper.worker.model_runner.kv_caches:
        cache.zero_()


def device_bytes(wrapper: Any) -> tuple[int, int]:
    """(free on this rank's GPU, held by vLLM's sleeping allocator when awake), bytes. Never run:
    needs a GPU."""
    from vllm.device_allocator.cumem import CuMemAllocator

    return torch.cuda.mem_get_info()[0], CuMemAllocator.get_instance().get_current_usage()


def check_residual(ranks: list[tuple[int, int]]) -> None:
    """Fault `engine_awake` when a rank freed too little. `ranks`: (bytes held when awake, bytes
    freed) of each."""
    for rank, (held, freed) in enumerate(ranks):
        if held - freed > RESIDUAL_MB * _MB:
            what = f"rank {rank} of a sleeping engine freed {freed // _MB} of {held // _MB} MB"
            raise Fault("engine_awake", f"{what}; at most {RESIDUAL_MB} MB may stay")


@contextmanager
def folder_of(files: Mapping[str, Any]) -> Iterator[str]:
    """A folder with these files, as long as the context lives. `files`: by name; of safetensors,
    the arrays by name, of others what is written as JSON."""
    from safetensors.numpy import save_file

    with tempfile.TemporaryDirectory(prefix="ssp-weights-") as folder:
        for name, content in files.items():
            file = Path(folder, name)
            if file.suffix == ".safetensors":
                arrays = {key: np.ascontiguousarray(array) for key, array in content.items()}
                save_file(arrays, file)
            else:
                file.write_text(json.dumps(content), encoding="utf-8")
        yield folder
