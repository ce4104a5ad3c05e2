"""The steps of kit.py: each makes its model, measures, and returns its figures and the targets that it missed."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ssp.base import models
from ssp.base.shape import Shape
from ssp.capacity.memory.learner import rank
from ssp.capacity.memory.shapes import PUBLIC, find
from ssp.config.cluster import RayConfig
from ssp.config.role import EngineConfig, RoleConfig
from ssp.engines.folder import ModelFolder
from ssp.learning.batch import Batch
from ssp.learning.learner import PolicyLearner

MFU, MEMORY = 0.45, 0.10
"""Targets for 3B: model operations of an update against the measured rate; peak memory against the plan."""
ALIKE = {"bfloat16": (0.9, 0.02), "float32": (0.999, 1e-3)}
"""By the type of the computation: least cosine of two backends' updates, and most relative difference of the gradient's
norm. The first step of Adam is the sign of the gradient, so small gradients that round otherwise count whole."""
TINY = Shape(layers=2, hidden=64, heads=2, kv_heads=1, head_dim=32, mlp=128, vocab=512, tied=True, bias=True)


def run(part: str, folder: Path, dry: bool, seconds: float = 0.0) -> dict[str, Any]:
    """One step's row. `seconds`: of the game, in this call."""
    name, _, size = part.partition("-")
    if name in ("english", "machine"):
        import gpugame

        return {"english": gpugame.play, "english-after": gpugame.after, "machine": gpugame.machine}[part](
            folder, dry, seconds
        )
    if name in ("engine", "greedy"):
        import gpuengine

        return {"engine": gpuengine.speed, "greedy": gpuengine.greedy}[name](model(folder, "smollm2", dry), dry)
    if name == "learner":
        return learner(model(folder, size, dry), dry, bounded=size == "3B" and not dry)
    if name == "zero":
        return deepspeed(model(folder, "0.5B", dry), int(size), dry)
    if name == "vllm":
        return vllm(model(folder, "0.5B", dry), dry)
    return transfer(model(folder, "3B", dry))


def model(folder: Path, size: str, dry: bool) -> Path:
    """A model folder of that shape with random weights, bfloat16 on disk, made once; smollm2 is the real one."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    if size == "smollm2" and not dry:
        return models.folder("smollm2-135m", "the model")
    shape = TINY if dry else PUBLIC[f"Qwen2.5-{size}"]
    made = folder / ("tiny" if dry else size)
    if (made / "ssp.json").is_file():
        return made
    config = Qwen2Config(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=512 if dry else 32_768,
    )
    torch.manual_seed(0)
    with torch.device("cpu" if dry else "cuda"):
        network = Qwen2ForCausalLM(config).to(torch.bfloat16)
    network.save_pretrained(made)  # and only then the mark that it is whole
    (made / "ssp.json").write_text(json.dumps({"protocol": "mini"}))
    del network
    gc.collect()
    return made


def settings(dry: bool, **learner: Any) -> RoleConfig:
    """A role whose micro-batches hold 8,192 tokens (dry: 512)."""
    config = RoleConfig(algorithm="grpo", loss="pg")
    config.limits.total_tokens = config.learner.token_budget = 512 if dry else 8192
    config.learner.lr, config.learner.packing, config.learner.checkpointing = 1e-3, True, True
    config.learner.dtype = "float32" if dry else "bfloat16"
    for name, value in learner.items():
        setattr(config.learner, name, value)
    return config


def batch(config: RoleConfig, words: int, micro_batches: int) -> Batch:
    """Rows of a quarter of the budget, the second half of each trained, in groups of four."""
    length, rows = config.learner.token_budget // 4, 4 * micro_batches
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, words, (rows, length), generator=generator)
    mask = torch.zeros(rows, length, dtype=torch.bool)
    mask[:, length // 2 :] = True
    return Batch(
        ids=ids,
        mask=mask,
        logprobs=torch.where(mask, -float(np.log(words)), 0.0),
        rewards=torch.arange(rows).remainder(2).float(),
        valid=torch.ones(rows, dtype=torch.bool),
        groups=torch.arange(rows) // 4,
    )


def learner(folder: Path, dry: bool, bounded: bool) -> dict[str, Any]:
    """Speed of an update and its peak memory."""
    config, gpu = settings(dry), torch.cuda.is_available()
    found = find(str(folder))
    assert found.shape is not None
    work = batch(config, found.shape.vocab, 4)
    made = PolicyLearner(folder, {"solver": config}, "mini")
    gc.collect()
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    updates = [made.update({"solver": work})["solver"] for _ in range(2 if dry else 5)][1:]
    best = max(updates, key=lambda figures: figures["mfu"])
    row: dict[str, Any] = {
        "tokens_per_second": work.ids.numel() / best["seconds"],
        "mfu": best["mfu"],
        "matrix_tflops": made.rate / 1e12,
        "missed": [],
    }
    if "token_budget" in best:
        row["missed"].append(f"memory allowed {best['token_budget']:.0f} tokens a micro-batch only")
    if gpu:
        row["peak_gb"] = torch.cuda.max_memory_allocated() / 2**30
        row["planned_gb"] = sum(need.bytes for need in rank(found, [config], gpu=True) if not need.host) / 2**30
        if abs(row["peak_gb"] / row["planned_gb"] - 1) > MEMORY:
            row["missed"].append(f"peak memory within {MEMORY:.0%} of the plan")
    if bounded and row["mfu"] < MFU:
        row["missed"].append(f"MFU >= {MFU:.0%}")
    return row


def deepspeed(folder: Path, zero: int, dry: bool) -> dict[str, Any]:
    """One update of DeepSpeed's against torch's, from the same weights on the same batch."""
    config = settings(dry)
    shape = find(str(folder)).shape
    assert shape is not None
    work = batch(config, shape.vocab, 2)

    def taught(role: RoleConfig) -> tuple[dict[str, np.ndarray], dict[str, float], float]:
        made = PolicyLearner(folder, {"solver": role}, "mini")
        figures = made.update({"solver": work})["solver"]
        weights = made.weights()
        again = made.update({"solver": work})["solver"]["seconds"]  # without what the first one sets up
        return weights, figures, again

    start = PolicyLearner(folder, {"solver": config}, "mini").weights()
    _freed()
    torchs, theirs, torch_seconds = taught(config)
    _freed()
    own, figures, seconds = taught(settings(dry, kind="deepspeed", zero=zero))
    cosine = _cosine(start, torchs, own)
    apart = abs(figures["grad_norm"] / theirs["grad_norm"] - 1)
    least, most = ALIKE[config.learner.dtype]
    missed = [f"update like torch's: cosine >= {least}"] if cosine < least else []
    missed += [f"gradient norm within {most:g} of torch's"] if apart > most else []
    return {
        "seconds": seconds,
        "torch_seconds": torch_seconds,
        "cosine": cosine,
        "norm_apart": apart,
        "missed": missed,
    }


def _cosine(start: dict[str, np.ndarray], one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    dot = left = right = 0.0
    for name, before in start.items():
        a, b = (one[name] - before).ravel(), (other[name] - before).ravel()
        dot, left, right = dot + float(a @ b), left + float(a @ a), right + float(b @ b)
    return dot / float(np.sqrt(left * right))


def _freed() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def vllm(folder: Path, dry: bool) -> dict[str, Any]:
    """Tokens a second of the engine alone: many slots, one turn."""
    from ssp.engines.base import Sampling
    from ssp.engines.vllm.engine import VllmEngine

    slots, prompt, new = (4, 16, 16) if dry else (256, 512, 256)
    shape = find(str(folder)).shape
    assert shape is not None
    kind = "float32" if dry else "bfloat16"
    engine = VllmEngine(folder, EngineConfig(kind="vllm", dtype=kind, sequences=slots))
    try:
        rng, seconds = np.random.default_rng(0), []
        for turn in range(2):  # the first one warms up
            opened = engine.open(list(range(turn * slots, (turn + 1) * slots)))
            pending = rng.integers(0, shape.vocab, (slots, prompt)).tolist()
            began = time.perf_counter()
            generations = engine.step(opened, pending, Sampling(1.0, new))
            seconds.append(time.perf_counter() - began)
            assert all(len(generation.ids) == new for generation in generations)
            engine.close(opened)
        return {"tokens_per_second": slots * new / seconds[-1], "slots": slots, "missed": []}
    finally:
        engine.stop()


def transfer(folder: Path) -> dict[str, Any]:
    """Seconds from a learner's arrays (float32, on the host) to an engine's own tensors in another process."""
    import ray

    from actors import cluster
    from ssp.selfplay.transfer.publisher import Publisher

    weights = {name: np.full(shape, 0.5, np.float32) for name, shape in ModelFolder(folder).shapes.items()}
    nbytes, gpu = sum(array.nbytes for array in weights.values()), torch.cuda.is_available()
    megabytes = 100 + int(1.1 * nbytes / 1e6)
    cluster.connect(RayConfig(dashboard=-1), store=megabytes * 10**6)
    try:
        receiver = ray.remote(Receiver).options(num_gpus=0.5 if gpu else 0).remote()
        ray.get(receiver.take.remote(None))
        seconds = []
        for _ in range(2):
            outbox = Publisher()
            began = time.perf_counter()
            parcel, _ = outbox.pack(weights)
            total = ray.get(receiver.take.remote(ray.put(parcel)))
            seconds.append(time.perf_counter() - began)
            assert total == 0.5 * len(weights), "what arrived is not what was sent"
            del parcel
        bound = _bound(nbytes, gpu)
        return {
            "gb": nbytes / 1e9,
            "seconds": min(seconds),
            "bound": bound,
            "ratio": min(seconds) / bound,
            "missed": [],
        }
    finally:
        cluster.disconnect()


class Receiver:
    """An engine's process: opens a parcel and copies it to memory of its own."""

    def take(self, parcel: Any) -> float:
        """The sum of the first number of each tensor."""
        from ssp.selfplay.transfer.loader import opened

        place = "cuda" if torch.cuda.is_available() else "cpu"
        if parcel is None:
            torch.zeros(1, device=place)
            return 0.0
        own = {name: torch.as_tensor(value).to(place, copy=True) for name, value in opened(parcel).items()}
        return sum(float(tensor.reshape(-1)[0]) for tensor in own.values())


def _bound(nbytes: int, gpu: bool) -> float:
    """Seconds of the plain copies that such a transfer cannot do without, each measured on at most 1 GB."""
    count = min(nbytes, 10**9) // 4
    host, other = np.ones(count, np.float32), np.ones(count, np.float32)
    whole = nbytes / (4 * count)
    on_host = _best(lambda: np.copyto(other, host))
    if not gpu:
        return 2 * on_host * whole
    tensor, there = torch.from_numpy(host), torch.empty(count, device="cuda")
    up = _best(lambda: there.copy_(tensor))
    return (on_host + up) * whole


def _best(copy: Callable[[], Any]) -> float:
    taken = []
    for _ in range(4):
        began = time.perf_counter()
        copy()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return min(taken)
