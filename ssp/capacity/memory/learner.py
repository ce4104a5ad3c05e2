"""What one rank of a learner needs; weights, gradients and optimizer states of a torch learner
exactly.

Sources: Rajbhandari et al. 2020 (arXiv 1910.02054), section 3.1: AdamW holds 12 bytes a trained
parameter in mixed precision (master weight, two moments), and stage 1 cuts these by the ranks,
stage 2 the gradients too, stage 3 the weights too. Hu et al. 2021 (arXiv 2106.09685): adapters
alone have gradients and states.
Korthikanti et al. 2022 (arXiv 2205.05198), equation 1, for what a forward pass keeps for the
backward pass under attention without a score matrix: here without dropout, with a gated MLP,
grouped keys, and RMSNorms that keep a float32 copy of their input (measured in tests against the
tensors that autograd saves)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ssp.base.shape import Shape
from ssp.capacity.memory.needs import Need
from ssp.capacity.memory.shapes import Model
from ssp.config.role import LearnerConfig, RoleConfig

FLOAT32, BFLOAT16 = 4, 2
BUCKET = 200_000_000
"""Numbers that DeepSpeed communicates at a time, as its backend does (a test compares them)."""
LIVE = 1_000_000_000
"""Weights that stage 3 holds gathered at a time, and parameters that it steps at a time
(DeepSpeed's own defaults)."""
CELLS, CELL_BYTES = 2**26, 24
"""Logits at a time (as `ssp.learning.forward.CELLS`), and bytes of each in the backward pass:
logits, softmax, exponential and entropy product, two gradients, float32 each."""


def width(dtype: str) -> int:
    """Bytes of a number of that type."""
    return BFLOAT16 if dtype == "bfloat16" else FLOAT32


def stored(learner: LearnerConfig) -> int:
    """Bytes of a weight while it trains: torch keeps float32 and computes in bfloat16 by autocast,
    DeepSpeed keeps both."""
    return width(learner.dtype) if learner.kind == "deepspeed" else FLOAT32


def rank(model: Model, blocks: Sequence[RoleConfig], gpu: bool = False) -> tuple[Need, ...]:
    """The needs of one rank that trains `blocks`: a role, or two that share one policy (then the
    first one's learner)."""
    learner, trained = blocks[0].learner, trainable(model, blocks[0].learner)
    needs = [*states(model.parameters, trained, learner), *_reference(model, blocks, trained)]
    if any(block.algorithm == "gae" for block in blocks):
        needs.append(
            Need(
                "critic", sum(need.bytes for need in states(critic(model), critic(model), learner))
            )
        )
    working = list(_activations(model, blocks, gpu))
    if learner.kind == "deepspeed" and learner.offload == "none":
        # of the gradient, in float32 for the step, when the activations are gone
        part = -(-trained // learner.ranks)
        step = FLOAT32 * (min(part, LIVE) if learner.zero == 3 else part) - sum(
            need.bytes for need in working
        )
        if step > 0:
            working.append(Need("gradients in float32", step, turn=True))
    # Each rank reads the whole model once. The first one publishes and saves it whole: from a GPU
    # through two copies.
    whole = Need(
        "whole weights", model.parameters * FLOAT32 * (2 if gpu else 1), host=True, after=True
    )
    return (*needs, *working, whole)


def trainable(model: Model, learner: LearnerConfig) -> int:
    """Parameters that have a gradient."""
    lora = learner.lora
    return model.shape.adapter(lora.rank) if lora.rank and model.shape else model.parameters


def critic(model: Model) -> int:
    """Parameters of a value model: the policy's without its own output matrix, and a head."""
    if model.shape is None:
        return model.parameters
    shape = model.shape
    return model.parameters - (0 if shape.tied else shape.vocab * shape.hidden) + shape.hidden + 1


def states(parameters: int, trained: int, learner: LearnerConfig) -> list[Need]:
    """Weights, gradients and optimizer of one rank, and what DeepSpeed communicates with."""
    numbers, away = stored(learner), learner.offload != "none"
    weights = numbers * (parameters if trained == parameters else parameters + trained)
    if learner.kind != "deepspeed":
        gradients, moments = (
            Need("gradients", numbers * trained, turn=True),
            Need("moments", 2 * FLOAT32 * trained),
        )
        return [Need("weights", weights), gradients, moments]
    cut = {stage: learner.ranks if learner.zero >= stage else 1 for stage in (1, 2, 3)}
    third = learner.zero == 3
    bucket = min(parameters, BUCKET) * numbers
    needs = [
        Need("weights", -(-weights // cut[3]), host=learner.offload == "all"),
        # Stage 3 keeps its part of the gradient from one update to the next, and one bucket.
        Need("gradients", -(-numbers * trained // cut[2]), host=third and away, turn=not third),
        Need("master weights", -(-FLOAT32 * trained // cut[1]), host=away),
        Need("moments", -(-2 * FLOAT32 * trained // cut[1]), host=away),
        Need("buckets", bucket if third else 2 * bucket, turn=not third),
    ]
    if third:
        needs.append(Need("gathered weights", min(parameters, LIVE) * numbers, turn=True))
    if away:
        needs.append(Need("gradients in float32", -(-FLOAT32 * trained // cut[1]), host=True))
    return needs


def _reference(model: Model, blocks: Sequence[RoleConfig], trained: int) -> list[Need]:
    """The model that the KL is measured to, one for all roles of a policy; of a policy with
    adapters it is the base itself. One that moves has float32 masters."""
    learner, held = blocks[0].learner, [block.kl for block in blocks if block.kl.coef > 0]
    if not held or trained < model.parameters:
        return []
    numbers = stored(learner)
    moves = any(kl.ema_tau < 1 for kl in held) and numbers != FLOAT32
    cut = learner.ranks if learner.kind == "deepspeed" and learner.zero == 3 else 1
    return [Need("reference", -(-model.parameters * (numbers + (FLOAT32 if moves else 0)) // cut))]


def _activations(model: Model, blocks: Sequence[RoleConfig], gpu: bool) -> Iterator[Need]:
    """What forward and backward pass of the largest micro-batch take, all of it only in an
    update."""
    learner, shape = blocks[0].learner, model.shape
    if shape is None:
        return
    # An episode that is longer than the budget is a micro-batch of its own.
    tokens = max(max(block.learner.token_budget, block.limits.longest) for block in blocks)
    packed = learner.packing
    way = Way(stored(learner), width(learner.dtype), packed=packed, copies=packed and not gpu)
    # comes and goes in the widest layer
    passing = tokens * way.product * (2 * shape.mlp + 2 * shape.hidden)
    yield Need("activations", kept(shape, tokens, way, learner.checkpointing) + passing, turn=True)
    yield Need("logits", CELL_BYTES * min(CELLS, tokens * shape.vocab), turn=True)
    if way.product < way.stream:
        yield Need("weights in bfloat16", way.product * model.parameters, turn=True)


@dataclass(frozen=True)
class Way:
    """How a learner computes: bytes of a number between layers (`stream`) and in matrix products
    (smaller under autocast); `packed`: rows lie side by side; `copies`: attention works on float32
    copies and its result is copied (packed rows on a CPU)."""

    stream: int
    product: int
    packed: bool = False
    copies: bool = False


def kept(shape: Shape, tokens: int, way: Way, checkpointing: bool) -> int:
    """Bytes kept of `tokens` tokens until the backward pass; with checkpointing each layer's input,
    and one layer whole."""
    layer = per_layer(shape, way)
    layers = (
        shape.layers * shape.hidden * way.stream + layer if checkpointing else shape.layers * layer
    )
    around = 2 * shape.head_dim * way.stream + 16  # rotary angles, ids and places
    return tokens * (layers + around + _norm(shape.hidden, way.stream))


def per_layer(shape: Shape, way: Way) -> int:
    """Bytes a token of one layer."""
    heads, product = shape.query + shape.key, way.product
    # Under autocast each of the five products behind a norm has a copy of its own of the norm's
    # result; not where packed.
    inputs = (5 if product < way.stream and not way.packed else 2) * shape.hidden * product
    norms = 2 * _norm(shape.hidden, way.stream) + inputs
    if shape.qk_norm:
        norms += heads * (4 + product) + 4 * (shape.heads + shape.kv_heads)
    attention = (
        (4 if way.copies else product) * 2 * heads
        + 4 * shape.heads
        + way.copies * product * shape.query
    )
    return norms + attention + product * 4 * shape.mlp


def _norm(numbers: int, width: int) -> int:
    """An RMSNorm over so many numbers: its input in float32, the normalised one in the model's
    type, and its scale."""
    return numbers * (4 + width) + 4
