"""What runs inside vLLM's worker, whose process may be another one: reload weights, read them or an adapter back, measure
memory.

Owns the repairs that vLLM's reload needs on a CPU. Promises that after `reload` every layer computes with the new
weights, a tied output head too. Refuses to know requests and versions. Each function's first argument is vLLM's worker
wrapper, as `collective_rpc` passes it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssp.base.errors import Fault

Weights = Mapping[str, "np.ndarray | Tensor"]
PEFT = "base_model.model."
"""What peft puts before a parameter's name, in the names of an adapter's tensors."""
RESIDUAL_MB = 2048
"""Most that a sleeping engine may still hold on each of its GPUs: the learner plans with the rest."""
_MB = 2**20


def reload(wrapper: Any, source: Weights | str) -> None:
    """Replace the weights. `source`: tensors by Hugging Face name, or the path of a safetensors file that holds them."""
    worker = wrapper.worker
    if isinstance(source, str):
        from safetensors.torch import load_file

        source = load_file(source)
    worker.reload_weights(weights_iterator=_tensors(source))
    repair_head(worker.model_runner.model)


def repair_head(model: Any) -> None:
    """Pack a tied output head anew. On a CPU vLLM computes it from a packed copy, which its reload leaves as it was:
    the engine would go on to sample from the old head without an error (vllm 0.32)."""
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
    from vllm.platforms import current_platform

    if current_platform.is_cpu() and getattr(model.config, "tie_word_embeddings", False):
        dispatch_cpu_unquantized_gemm(model.lm_head, remove_weight=False)


def watch(wrapper: Any) -> None:
    """Have this worker, a process of its own, end with the engine's process, in a second and whatever it is doing then.

    vLLM's own watch closes the queues only, which a worker that waits for other ranks does not notice.
    """
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=look, name="parent-watch", daemon=True).start()


def clear_cache(wrapper: Any) -> None:
    """Fill the KV cache with zeros: what is not a number would outlive its masking."""
    for cache in wrapper.worker.model_runner.kv_caches:
        cache.zero_()


def read(wrapper: Any) -> dict[str, np.ndarray]:
    """The weights that the layers compute with, float32, by Hugging Face name; of a model on one rank.

    Packed ones are read through their own product with the identity matrix, which is exact.
    """
    model = wrapper.worker.model_runner.model
    fused = getattr(model, "packed_modules_mapping", {})
    found: dict[str, np.ndarray] = {}
    for path, module in model.named_modules():
        for name, tensor in _own(module):
            stem, _, last = path.rpartition(".")
            parts = fused.get(last) or [last]
            sizes = module.output_partition_sizes if len(parts) > 1 else [len(tensor)]
            for part, piece in zip(parts, tensor.split(sizes), strict=True):
                found[".".join(filter(None, (stem, part, name)))] = piece.float().cpu().numpy()
    return found


def adapter_differs(wrapper: Any, number: int, tensors: Mapping[str, np.ndarray], scaling: float) -> str:
    """The first tensor (by peft's name) with which this rank does not compute as adapter `number` with `tensors` would have
    it; "" for none. Where no tensor is given, zeros are right."""
    manager = wrapper.worker.model_runner.lora_manager._adapter_manager
    if number not in manager.lora_index_to_id:
        return f"adapter {number}"
    index = manager.lora_index_to_id.index(number)
    for path, module in manager.modules.items():
        stem, _, last = path.rpartition(".")
        for i, part in enumerate(manager.packed_modules_mapping.get(last) or [last]):
            for kind, stacked, factor in (("A", module.lora_a_stacked, 1.0), ("B", module.lora_b_stacked, scaling)):
                name = f"{PEFT}{stem}.{part}.lora_{kind}.weight"
                held, wanted = stacked[i][index, 0], torch.zeros_like(stacked[i][index, 0])
                if name in tensors:
                    given = torch.tensor(tensors[name]).to(held) * factor  # as vLLM: it scales B in the engine's dtype
                    wanted[: given.shape[0], : given.shape[1]] = given
                if not torch.equal(held, wanted):
                    return name
    return ""


def device_bytes(wrapper: Any) -> tuple[int, int]:
    """(free on this rank's GPU, held by vLLM's sleeping allocator when awake), bytes. Never run: needs a GPU."""
    from vllm.device_allocator.cumem import CuMemAllocator

    return torch.cuda.mem_get_info()[0], CuMemAllocator.get_instance().get_current_usage()


def check_residual(ranks: list[tuple[int, int]]) -> None:
    """Fault `engine_awake` when a rank freed too little. `ranks`: (bytes held when awake, bytes freed) of each."""
    for rank, (held, freed) in enumerate(ranks):
        if held - freed > RESIDUAL_MB * _MB:
            found = f"rank {rank} of a sleeping engine freed {freed // _MB} of {held // _MB} MB"
            raise Fault("engine_awake", f"{found}; at most {RESIDUAL_MB} MB may stay")


def _tensors(weights: Weights) -> Iterator[tuple[str, Tensor]]:
    """Tensors of their own: arrays that came through the object store are read-only."""
    for name, value in weights.items():
        yield name, value if isinstance(value, Tensor) else torch.tensor(value)


@torch.no_grad()
def _own(module: Any) -> Iterator[tuple[str, Tensor]]:
    """Weight and bias of one module, without the rows that pad a vocabulary."""
    for name, parameter in module.named_parameters(recurse=False):
        tensor = parameter.data
        if name == "weight" and hasattr(module, "cpu_linear"):
            columns = getattr(module, "input_size_per_partition", None) or module.embedding_dim
            identity = torch.eye(int(columns), dtype=parameter.dtype)
            tensor = module.cpu_linear(identity, module.weight, None).T
        rows = getattr(module, "org_vocab_size", None)
        yield name, tensor[:rows].contiguous()
