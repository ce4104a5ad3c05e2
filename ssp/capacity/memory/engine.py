"""What one engine needs: weights, the KV cache of its episodes, and room to work.

Owns the sums of the embedded engine and of vLLM. Promises to say when a cache is too small for one whole episode, since
such an engine could not even start. Refuses to know placement.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from ssp.base.shape import Shape
from ssp.capacity.memory.learner import FLOAT32, width
from ssp.capacity.memory.needs import GB, MB, Need, size
from ssp.capacity.memory.shapes import Model
from ssp.config.role import RoleConfig
from ssp.config.tables import ACTED

BATCHED = 8192
"""Tokens that vLLM computes at a time (its max_num_batched_tokens for offline use on data-centre GPUs)."""
GRAPHS = GB
"""CUDA graphs, which vLLM captures beside its share of the memory; none with engine.eager."""
PREFILL = 512
"""Tokens that the embedded engine reads at a time."""
RESIDUE = 2 * GB
"""What a sleeping engine may leave on its GPU (context, communicators): it refuses to sleep with more."""
CPU_KV = 256 * MB
"""vLLM's cache on a CPU when engine.kv_mb is 0."""


@dataclass(frozen=True)
class EngineNeeds:
    """Needs of one engine, what to know of its cache, and what is short ("" = nothing)."""

    needs: tuple[Need, ...]
    note: str = ""
    short: str = ""


def engine(model: Model, role: RoleConfig, episodes: int, gpu: int = 0, adapters: int = 0) -> EngineNeeds:
    """An engine of `role` that plays so many episodes at a time, on GPUs of `gpu` bytes (0 = on CPUs). `adapters`: numbers
    in vLLM's room for them."""
    if role.engine.kind in ("endpoint", *ACTED):  # no model in this process
        return EngineNeeds(())
    if role.engine.kind == "vllm":
        return _vllm(model, role, episodes, gpu, adapters)
    weights = model.parameters * FLOAT32  # as they are read and come from a learner
    if model.shape is None:
        return EngineNeeds((Need("weights", weights),))
    packed = (model.parameters + _twice(model.shape)) * width(role.engine.dtype)
    return EngineNeeds(
        (
            Need("weights", packed),
            Need("next weights", packed + weights, turn=True),
            Need("KV cache", episodes * _full(model, role, FLOAT32)),
            Need("workspace", _playing(model.shape, episodes), after=True),
        )
    )


def fitting(model: Model, role: RoleConfig, room: int) -> int:
    """Episodes of the greatest length whose cache and logits take at most `room` bytes in the embedded engine, at least one.
    Other engines have bounds of their own: as many as there are."""
    if role.engine.kind != "torch" or model.shape is None:
        return sys.maxsize
    return max(1, room // (_full(model, role, FLOAT32) + 4 * FLOAT32 * model.shape.vocab))


def _twice(shape: Shape) -> int:
    """Numbers that the embedded engine holds twice: an output matrix that is tied, and where queries and keys have no norm
    their projections, the second time turned."""
    return shape.tied * shape.vocab * shape.hidden + (
        0 if shape.qk_norm else shape.layers * (shape.query + shape.key) * (shape.hidden + 1)
    )


def _playing(shape: Shape, episodes: int) -> int:
    """Bytes of one step: a prefill's widest layer, or every episode's logits, probabilities, and two passing copies."""
    return FLOAT32 * max(PREFILL * (3 * shape.mlp + 4 * shape.hidden), 4 * episodes * shape.vocab)


def _full(model: Model, role: RoleConfig, numbers: int = 0) -> int:
    """Bytes that one episode of the greatest length takes in the cache, `numbers` bytes each (0: as the weights)."""
    each = 0 if model.shape is None else model.shape.kv_numbers
    return each * role.limits.longest * (numbers or width(role.engine.dtype))


def _vllm(model: Model, role: RoleConfig, episodes: int, gpu: int, adapters: int) -> EngineNeeds:
    cfg, ranks = role.engine, role.engine.tensor_parallel
    weights = -(-model.parameters * width(cfg.dtype) // ranks)
    beside = adapters * width(cfg.dtype)
    work = _work(model, role)
    one = -(-_full(model, role) // ranks)
    share = int(cfg.memory * gpu)
    if cfg.kv_mb:
        cache = cfg.kv_mb * MB
    else:
        cache = max(share - weights - beside - work, 0) if gpu else CPU_KV
    needs = [
        Need("weights", weights, turn=True),
        *([Need("adapters", beside, turn=True)] if beside else []),
        Need("KV cache", cache, turn=True),
        Need("workspace", work, turn=True),
    ]
    if gpu:
        graphs = 0 if cfg.eager else GRAPHS
        needs += [Need("graphs", graphs, turn=True), Need("context", RESIDUE)]
    wanted = min(episodes, cfg.sequences)
    note = f"its cache holds {cache // one} of {wanted} episodes at full length" if one and cache < wanted * one else ""
    short = ""
    if cache < one:
        short = (
            f"{size(one)} of KV cache for one episode of {role.limits.longest} tokens, where {size(cache)} are left "
            f"beside {size(weights)} of weights"
        )
    return EngineNeeds(tuple(needs), note, short)


def _work(model: Model, role: RoleConfig) -> int:
    """Activations of one step of vLLM, and the sampler's float32 logits of every sequence (three copies)."""
    if model.shape is None:
        return 0
    shape, cfg = model.shape, role.engine
    tokens = min(BATCHED, role.limits.longest * cfg.sequences)
    layer = tokens * (2 * shape.mlp // cfg.tensor_parallel + 4 * shape.hidden) * width(cfg.dtype)
    return layer + 3 * 4 * cfg.sequences * shape.vocab
