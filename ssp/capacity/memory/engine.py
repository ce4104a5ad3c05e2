"""What one engine needs: weights, the KV cache of its episodes, and room to work; of the embedded
engine, and of vLLM."""

import sys
from dataclasses import dataclass

from ssp.base.errors import hold
from ssp.capacity.memory.learner import FLOAT32, width
from ssp.capacity.memory.needs import GB, Need, size
from ssp.capacity.memory.shapes import Model
from ssp.config.role import ACTED, RoleConfig
from ssp.engines.base import most_rows
from ssp.engines.vllm.setup import cpu_cache

BATCHED = 8192
"""Tokens that vLLM computes at a time (its max_num_batched_tokens for offline use on data-centre
GPUs)."""
GRAPHS = GB
"""CUDA graphs, an allowance: vLLM captures them beside its share of the memory, the embedded engine
records them."""
PREFILL, GPU_PREFILL = 512, 4096
"""Tokens that the embedded engine reads at a time on a CPU and on a GPU."""
RESIDUE = 2 * GB
"""What a sleeping engine may leave on its GPU (context, communicators): it refuses to sleep with
more."""


@dataclass(frozen=True)
class EngineNeeds:
    """Needs of one engine, and what is short of one episode, without which none starts."""

    needs: tuple[Need, ...] = ()
    short: str = ""


def engine(
    model: Model, role: RoleConfig, episodes: int, gpu: int = 0, adapters: int = 0
) -> EngineNeeds:
    """An engine of `role` with so many episodes, on GPUs of `gpu` bytes (0: CPUs). `adapters`:
    numbers in vLLM's room."""
    if role.engine.kind in ("endpoint", *ACTED):  # no model in this process
        return EngineNeeds()
    if role.engine.kind == "vllm":
        return _vllm(model, role, gpu, adapters)
    read, shape = model.parameters * FLOAT32, model.shape
    if shape is None:
        return EngineNeeds((Need("weights", read),))
    episodes = most_rows(episodes) if gpu else episodes
    # Held twice: a tied output matrix, and without norms the projections of queries and keys, the
    # second time turned.
    twice = shape.tied * shape.vocab * shape.hidden
    if not shape.qk_norm:
        twice += shape.layers * (shape.query + shape.key) * (shape.hidden + 1)
    packed = (model.parameters + twice) * width(role.engine.dtype)
    # The output matrix passes through float32 copies. Weights are mapped, but narrow files are read
    # into float32.
    copies = (2 if role.engine.dtype == "float32" else 3) * FLOAT32 * shape.vocab * shape.hidden
    logits, layer = 4 * episodes * shape.vocab, 3 * shape.mlp + 4 * shape.hidden
    playing = FLOAT32 * max(PREFILL * layer, logits)
    coming = [Need("next weights", max(packed, read * model.narrow) + copies, turn=True)]
    if gpu:  # masks and scores count here; weights come over the host and are packed on the GPU
        playing = FLOAT32 * max(GPU_PREFILL * (layer + shape.heads * role.limits.longest), logits)
        coming = [
            Need("next weights", packed + copies, turn=True),
            Need("read weights", read, host=True, turn=True),
        ]
        coming += [Need("graphs", GRAPHS)]
    cache = Need("KV cache", episodes * _full(model, role))
    # of a prefill's widest layer, or all logits in four copies
    work = Need("workspace", playing, after=True)
    return EngineNeeds((Need("weights", packed), *coming, cache, work))


def fitting(model: Model, role: RoleConfig, room: int) -> int:
    """Episodes of the greatest length whose cache and logits take at most `room` bytes in the
    embedded engine, at least one. Other engines have bounds of their own: as many as there are."""
    if role.engine.kind != "torch" or model.shape is None:
        return sys.maxsize
    return max(1, room // (_full(model, role) + 4 * FLOAT32 * model.shape.vocab))


def _full(model: Model, role: RoleConfig) -> int:
    """Bytes that one episode of the greatest length takes in the embedded engine's cache."""
    return (
        0
        if model.shape is None
        else model.shape.kv_numbers * role.limits.longest * width(role.engine.dtype)
    )


def _vllm(model: Model, role: RoleConfig, gpu: int, adapters: int) -> EngineNeeds:
    cfg, ranks, each, shape = (
        role.engine,
        role.engine.tensor_parallel,
        width(role.engine.dtype),
        model.shape,
    )
    weights, beside, work = -(-model.parameters * each // ranks), adapters * each, 0
    parted = shape is None or not (
        shape.heads % ranks or (shape.kv_heads % ranks and ranks % shape.kv_heads)
    )
    rule = (
        "engine.tensor_parallel divides a model's heads, and those of keys or is a multiple of them"
    )
    found = shape and f"{ranks}, with {shape.heads} heads and {shape.kv_heads} of keys"
    hold(parted, rule, found, "set another engine.tensor_parallel")
    # activations of one step, and the sampler's float32 logits of every sequence in three copies
    if shape is not None:
        tokens = min(BATCHED, cfg.longest * cfg.sequences)
        work = (
            tokens * (2 * shape.mlp // ranks + 4 * shape.hidden) * each
            + 3 * 4 * cfg.sequences * shape.vocab
        )
    one = (
        0
        if shape is None
        else -(-shape.kv_numbers * cfg.longest * each // min(ranks, shape.kv_heads))
    )
    cache = (
        max(int(cfg.memory * gpu) - weights - beside - work, 0)
        if gpu
        else cpu_cache(shape, cfg, cfg.longest)
    )
    needs = [
        Need("weights", weights, turn=True),
        # A CPU computes the logits from a packed copy.
        *(
            []
            if gpu or shape is None
            else [Need("packed output matrix", shape.vocab * shape.hidden * each, turn=True)]
        ),
        *([Need("adapters", beside, turn=True)] if beside else []),
        Need("KV cache", cache, turn=True),
        Need("workspace", work, turn=True),
    ]
    if gpu:
        needs += [Need("graphs", GRAPHS, turn=True), Need("context", RESIDUE)]
    short = f"{size(cache)} of KV cache for {size(one)} of one episode of {cfg.longest} tokens"
    return EngineNeeds(tuple(needs), short if cache < one else "")
