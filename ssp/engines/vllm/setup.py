"""How a vLLM engine is made: the environment it needs, its arguments for a CPU or GPUs, what it
refuses.

Promises token in, token out (no tokenizer is read), log-probs of the distribution that is sampled
from, one token a step, and sockets on loopback only. The GPU half was written from vLLM 0.32's
sources and has not been run."""

import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ssp.base.errors import hold, holding
from ssp.base.models import read_json
from ssp.base.shape import Shape, context
from ssp.config.role import EngineConfig, LoraConfig

CPU_SHARE = 16
"""A KV cache on a CPU takes at most one part in so many of the machine's memory. vLLM alone would
take nearly all, and a run has an engine for each player and for the verifier. What does not fit at
once waits, or is read again."""
LIMIT = Path("/sys/fs/cgroup/memory.max")
CPU_BLOCK = 32
"""Tokens of a KV block on a CPU. vLLM takes 128 there, and a prefix shorter than a block is never
found again."""
CPU_TOKENS = 2048
"""Tokens of one step on a CPU, at least."""
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Room that vLLM makes for adapters, by the largest rank."""
_ENVIRONMENT = {
    # the scheduler runs in this process, as `load` in the middle of turns needs
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # actors share the cores
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
}


def on_cpu() -> bool:
    """Whether the installed vLLM computes on a CPU."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def start(
    model_dir: Path, config: EngineConfig, sleeps: bool, adapters: Sequence[LoraConfig] = ()
) -> Any:
    """A vLLM `LLMEngine` with the weights of `model_dir`, and room for one adapter of each kind.
    InputError when vLLM refuses the model or the settings."""
    # Set, not defaulted: with another value the engine would be another one.
    os.environ.update(_ENVIRONMENT)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of vLLM's and torch's own making
        cpu = on_cpu()
        if cpu:
            _prepare_cpu()
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        if cpu:
            _check_heads(model_dir)
        keywords = arguments(model_dir, config, cpu, adapters)
        # A CPU has no sleep mode: who sleeps there only takes no turns.
        chosen = EngineArgs(**keywords, enable_sleep_mode=sleeps and not cpu)
        rule = "vLLM starts with this model and these engine settings"
        step = "change engine.*, or set engine.kind=torch"
        with holding((ValueError, NotImplementedError), rule, model_dir, step):
            return LLMEngine.from_engine_args(chosen)


def arguments(
    model_dir: Path, config: EngineConfig, cpu: bool, adapters: Sequence[LoraConfig] = ()
) -> dict[str, Any]:
    """Keywords of vLLM's `EngineArgs`, for a CPU or for GPUs."""
    model = read_json(model_dir / "config.json")
    own = context(model)
    longest = config.longest or own
    chosen: dict[str, Any] = {
        "model": str(model_dir),
        # Of the model's own context no more than is used: vLLM wants a cache that holds it once.
        "max_model_len": min(own or longest, longest) or None,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # not the folder's own defaults for sampling
        "dtype": config.dtype,
        "tensor_parallel_size": config.tensor_parallel,
        "distributed_executor_backend": "mp" if config.tensor_parallel > 1 else "uni",
        "max_num_seqs": config.sequences,
        "enable_prefix_caching": config.prefix_cache,
        "gpu_memory_utilization": config.memory,
        # at the sampling temperature; of greedy tokens at temperature 1
        "logprobs_mode": "processed_logprobs",
        "async_scheduling": False,  # else a token would be under way while weights are replaced
        "enforce_eager": cpu,  # compiling gains nothing on a CPU and costs half a minute
        "hf_overrides": {},
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        "seed": 0,  # turns bring seeds of their own
    }
    width = model.get("head_dim")
    heads = model.get("num_attention_heads", 0)
    odd = width and width * heads != model.get("hidden_size")
    if model.get("model_type") == "qwen2" and odd:
        # vLLM's own Qwen2 ignores head_dim (0.32); its Llama is the same model with a bias on
        # query, key and value.
        chosen["hf_overrides"] = {"architectures": ["LlamaForCausalLM"], "qkv_bias": True}
    if adapters:
        chosen["enable_lora"] = True
        # one version of each: a face has its new adapter only when the old one is gone
        chosen["max_loras"] = len(adapters)
        chosen["max_lora_rank"] = room(adapters)
        chosen["lora_target_modules"] = sorted(LoraConfig.targets)
    if cpu:
        chosen["kv_cache_memory_bytes"] = cpu_cache(Shape.known(model), config, longest)
        chosen["block_size"] = CPU_BLOCK
        # A prompt goes in whole. For one in pieces vLLM draws a token too many and winds the turn's
        # generator back; with a CPU generator that ends the engine with a RuntimeError (0.32).
        chosen["enable_chunked_prefill"] = False
        chosen["max_num_batched_tokens"] = max(CPU_TOKENS, longest)
    return chosen


def cpu_cache(shape: Shape | None, config: EngineConfig, longest: int) -> int:
    """Bytes of KV cache on a CPU: enough for `config.sequences` of `longest` tokens, within a share
    of this machine's memory, but for one of them at least. For a model of unknown shape it is the
    share."""
    most = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with suppress(OSError, ValueError):  # no such file, or "max"
        most.append(int(LIMIT.read_text()))
    share = min(most) // CPU_SHARE
    if shape is None:
        return share
    block = CPU_BLOCK * shape.kv_numbers * (2 if config.dtype == "bfloat16" else 4)
    one = -(-longest // CPU_BLOCK) * block
    return max(one, min(one * config.sequences, share)) + block  # vLLM keeps an empty one


def room(adapters: Sequence[LoraConfig]) -> int:
    """The rank for which vLLM makes room, the same for each."""
    largest = max(lora.rank for lora in adapters)
    return min(rank for rank in LORA_RANKS if rank >= largest)


def _prepare_cpu() -> None:
    """Keep vLLM from compiling, and from stumbling over llvmlite.

    It compiles a few small functions even when told to be eager, for which it takes ten seconds and
    a C++ compiler. And it looks through every module, among them numba's llvmlite, which invents
    any attribute, `__dict__` too (0.32)."""
    import torch._dynamo

    os.environ["TORCH_COMPILE_DISABLE"] = "1"  # for worker processes
    torch._dynamo.config.disable = True
    ffi = sys.modules.get("llvmlite.binding.ffi")
    if ffi is not None:
        ffi.lib._fntab.setdefault("__dict__", {})


def _check_heads(model_dir: Path) -> None:
    """InputError for heads of a width that vLLM's CPU attention has no kernel for. It would say so
    no sooner than at the first token."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    widths = CPUAttentionBackend.get_supported_head_sizes()
    model = read_json(model_dir / "config.json")
    width = model.get("head_dim") or model["hidden_size"] // model["num_attention_heads"]
    rule = f"heads are {', '.join(map(str, widths))} wide for vLLM on a CPU"
    hold(width in widths, rule, f"{width} in {model_dir}", "set engine.kind=torch")
