"""What one engine needs: weights, the KV cache of its episodes, and room to work; of the embedded
engine, and of vLLM."""

import sys
from dataclasses import dataclass

from ssp.base.errors import hold
from ssp.capacity.memory.learner import FLOAT32, width
from ssp.capacity.memory.needs import GB, Need, share, size
from ssp.capacity.memory.shapes import Model
from ssp.config.role import RoleConfig
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
    takes = role.engine.traits.model
    if not takes:  # no model in this process
        return EngineNeeds()
    if takes == "share":
        return _vllm(model, role, gpu, adapters)
    return EngineNeeds(tuple(_embedded(model, role, episodes, on_gpu=gpu > 0)))


def _embedded(model: Model, role: RoleConfig, episodes: int, on_gpu: bool) -> list[Need]:
    """What the embedded engine needs."""
    dtype = role.engine.dtype
    shape = model.shape
    read = model.parameters * FLOAT32
    if shape is None:
        return [Need("weights", read)]

    output = shape.vocab * shape.hidden
    twice = output if shape.tied else 0
    packed = (model.parameters + twice) * width(dtype)
    # The output matrix passes through two float32 copies.
    copies = 2 * FLOAT32 * output

    # A prefill's widest layer, or all logits in four copies.
    layer = 3 * shape.mlp + 4 * shape.hidden
    if on_gpu:  # masks and scores count here; weights come over the host and are packed on the GPU
        episodes = most_rows(episodes)
        prefill = GPU_PREFILL * (layer + shape.heads * role.limits.longest)
        coming = [
            Need("next weights", packed + copies, turn=True),
            Need("read weights", read, host=True, turn=True),
            Need("graphs", GRAPHS),
        ]
    else:  # weights are mapped, but narrow files are read into float32
        prefill = max(PREFILL * layer, 4 * episodes * shape.vocab)
        mapped = max(packed, read) if model.narrow else packed
        coming = [Need("next weights", mapped + copies, turn=True)]

    cache = Need("KV cache", episodes * _full(model, role))
    work = Need("workspace", FLOAT32 * prefill, after=True)
    return [Need("weights", packed), *coming, cache, work]


def fitting(model: Model, role: RoleConfig, room: int) -> int:
    """Episodes of the greatest length whose cache and logits take at most `room` bytes in the
    embedded engine, at least one. Other engines have bounds of their own: as many as there are."""
    if role.engine.traits.model != "needed" or model.shape is None:
        return sys.maxsize
    logits = 4 * FLOAT32 * model.shape.vocab
    return max(1, room // (_full(model, role) + logits))


def _full(model: Model, role: RoleConfig) -> int:
    """Bytes that one episode of the greatest length takes in the embedded engine's cache."""
    if model.shape is None:
        return 0
    return model.shape.kv_numbers * role.limits.longest * width(role.engine.dtype)


def _vllm(model: Model, role: RoleConfig, gpu: int, adapters: int) -> EngineNeeds:
    """What one rank of a vLLM engine needs."""
    cfg = role.engine
    ranks = cfg.tensor_parallel
    number = width(cfg.dtype)
    shape = model.shape
    weights = share(model.parameters * number, ranks)
    beside = adapters * number
    work = episode = packed = 0
    if shape is not None:
        whole = shape.kv_heads % ranks == 0 or ranks % shape.kv_heads == 0
        rule = (
            "engine.tensor_parallel divides a model's heads, and those of keys or is a multiple of"
            " them"
        )
        given = f"{ranks}, with {shape.heads} heads and {shape.kv_heads} of keys"
        step = "set another engine.tensor_parallel"
        hold(whole and shape.heads % ranks == 0, rule, given, step)
        # Activations of one step, and the sampler's float32 logits of every sequence in three
        # copies.
        tokens = min(BATCHED, cfg.longest * cfg.sequences)
        layer = 2 * shape.mlp // ranks + 4 * shape.hidden
        logits = FLOAT32 * cfg.sequences * shape.vocab
        work = tokens * layer * number + 3 * logits
        episode = share(shape.kv_numbers * cfg.longest * number, min(ranks, shape.kv_heads))
        # A CPU computes the logits from a packed copy.
        packed = 0 if gpu else shape.vocab * shape.hidden * number

    if gpu:
        left = int(cfg.memory * gpu) - weights - beside - work
        cache = max(left, 0)
    else:
        cache = cpu_cache(shape, cfg, cfg.longest)

    needs = [Need("weights", weights, turn=True)]
    if packed:
        needs.append(Need("packed output matrix", packed, turn=True))
    if beside:
        needs.append(Need("adapters", beside, turn=True))
    needs.append(Need("KV cache", cache, turn=True))
    needs.append(Need("workspace", work, turn=True))
    if gpu:
        needs.append(Need("graphs", GRAPHS, turn=True))
        needs.append(Need("context", RESIDUE))

    if cache >= episode:
        return EngineNeeds(tuple(needs))
    length = f"one episode of {cfg.longest} tokens"
    short = f"{size(cache)} of KV cache for {size(episode)} of {length}"
    return EngineNeeds(tuple(needs), short)
