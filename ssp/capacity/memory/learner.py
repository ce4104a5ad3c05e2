"""What one rank of a learner needs; weights, gradients and optimizer states of a torch learner
exactly.

Sources: Rajbhandari et al. 2020 (arXiv 1910.02054), section 3.1: AdamW holds 12 bytes a trained
parameter in mixed precision (master weight, two moments), and stage 1 cuts these by the ranks,
stage 2 the gradients too, stage 3 the weights too. Hu et al. 2021 (arXiv 2106.09685): adapters
alone have gradients and states.
Korthikanti et al. 2022 (arXiv 2205.05198), equation 1, for what a forward pass keeps for the
backward pass under attention without a score matrix: here without dropout, with a gated MLP,
grouped keys, and RMSNorms that keep their input in float32 (measured in tests against the tensors
that autograd saves)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ssp.base.shape import Shape
from ssp.capacity.memory.needs import Need, share
from ssp.capacity.memory.shapes import Model
from ssp.config.role import LearnerConfig, RoleConfig
from ssp.game.world.files import is_world
from ssp.record.runfolder import RunFolder

FLOAT32, BFLOAT16 = 4, 2
BUCKET = 200_000_000
"""Numbers that DeepSpeed communicates at a time, as its backend does (a test compares them)."""
LIVE = 1_000_000_000
"""Weights that stage 3 holds gathered at a time, and parameters that it steps at a time
(DeepSpeed's own defaults)."""
WIDE, QUERIES, SCORES = 32, 128, 2**24
"""As in `ssp.learning.attention`: numbers of a head from which packed rows attend in half precision
on a CPU, and queries and scores at a time there."""
SEEN = 4
"""As in `ssp.learning.batch`: the rows of a micro-batch see at most so many budgets of tokens, where
what they begin with alike is computed once."""
CELLS, CELL_BYTES = 2**26, 24
"""Logits at a time (as `ssp.learning.forward.CELLS`), and bytes of each in the backward pass:
logits, softmax, exponential and entropy product, two gradients, float32 each."""

TRACES = 8
"""Bytes at the peak for each byte of a file of traces that a rank reads to rehearse them (2,000
traces of 360 tokens)."""


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
    learner = blocks[0].learner
    trained = trainable(model, learner)

    needs = [*states(model.parameters, trained, learner), *_reference(model, blocks, trained)]
    if any(block.algorithm == "gae" for block in blocks):
        value_model = critic(model)
        parts = states(value_model, value_model, learner)
        needs.append(Need("critic", sum(part.bytes for part in parts)))

    working = _activations(model, blocks, gpu)
    needs += working
    if learner.kind == "deepspeed" and learner.offload == "none":
        # The step has its part of the gradient in float32, when the activations are gone.
        stepped = share(trained, learner.ranks)
        if learner.zero == 3:
            stepped = min(stepped, LIVE)
        more = FLOAT32 * stepped - sum(need.bytes for need in working)
        if more > 0:
            needs.append(Need("gradients in float32", more, turn=True))

    read = sum(traces(block) for block in blocks)
    if read:
        needs.append(Need("traces", read * TRACES, host=True))

    # Each rank reads the whole model once. The first one publishes and saves it whole: from a GPU
    # through two copies.
    copies = 2 if gpu else 1
    whole = model.parameters * FLOAT32 * copies
    needs.append(Need("whole weights", whole, host=True, after=True))
    return tuple(needs)


def traces(block: RoleConfig) -> int:
    """Bytes on disk of what a role rehearses: a file, or the transcripts of a run; 0 for nothing,
    and where it is not here."""
    if not block.rehearsal.share or is_world(block.rehearsal.data):
        return 0
    place = Path(block.rehearsal.data)
    files = list(RunFolder(place).episodes.glob("*")) if place.is_dir() else [place]
    return sum(file.stat().st_size for file in files if file.is_file())


def trainable(model: Model, learner: LearnerConfig) -> int:
    """Parameters that have a gradient."""
    lora_rank = learner.lora.rank
    if lora_rank and model.shape:
        return model.shape.adapter(lora_rank)
    return model.parameters


def critic(model: Model) -> int:
    """Parameters of a value model: the policy's without its own output matrix, and a head."""
    shape = model.shape
    if shape is None:
        return model.parameters
    head = shape.hidden + 1
    output = 0 if shape.tied else shape.vocab * shape.hidden
    return model.parameters - output + head


def states(parameters: int, trained: int, learner: LearnerConfig) -> list[Need]:
    """Weights, gradients and optimizer of one rank, and what DeepSpeed communicates with."""
    number = stored(learner)
    adapters = 0 if trained == parameters else trained
    weights = number * (parameters + adapters)
    gradients = number * trained
    masters = FLOAT32 * trained
    moments = 2 * FLOAT32 * trained
    if learner.kind != "deepspeed":
        return [
            Need("weights", weights),
            Need("gradients", gradients, turn=True),
            Need("moments", moments),
        ]

    # Stage 1 shares out the optimizer, stage 2 the gradients too, stage 3 the weights too.
    ranks = learner.ranks
    stage_3 = learner.zero == 3
    offloaded = learner.offload != "none"
    own_masters = share(masters, ranks)
    if learner.zero >= 2:
        gradients = share(gradients, ranks)
    if stage_3:
        weights = share(weights, ranks)

    bucket = min(parameters, BUCKET) * number
    buckets = bucket if stage_3 else 2 * bucket
    needs = [
        Need("weights", weights, host=learner.offload == "all"),
        # Stage 3 keeps its part of the gradient from one update to the next, and one bucket.
        Need("gradients", gradients, host=stage_3 and offloaded, turn=not stage_3),
        Need("master weights", own_masters, host=offloaded),
        Need("moments", share(moments, ranks), host=offloaded),
        Need("buckets", buckets, turn=not stage_3),
    ]
    if stage_3:
        needs.append(Need("gathered weights", min(parameters, LIVE) * number, turn=True))
    if offloaded:
        needs.append(Need("gradients in float32", own_masters, host=True))
    return needs


def _reference(model: Model, blocks: Sequence[RoleConfig], trained: int) -> list[Need]:
    """The reference model of the KL, one for all roles of a policy. A policy with adapters needs
    none: its base is the reference."""
    learner = blocks[0].learner
    penalties = [block.kl for block in blocks if block.kl.coef > 0]
    if not penalties or trained < model.parameters:
        return []

    number = stored(learner)
    if number != FLOAT32 and any(kl.ema_tau < 1 for kl in penalties):
        number += FLOAT32  # a reference that moves has float32 masters
    parts = learner.ranks if learner.kind == "deepspeed" and learner.zero == 3 else 1
    return [Need("reference", share(model.parameters * number, parts))]


def _activations(model: Model, blocks: Sequence[RoleConfig], gpu: bool) -> list[Need]:
    """What forward and backward pass of the largest micro-batch take, all of it only in an
    update."""
    learner = blocks[0].learner
    shape = model.shape
    if shape is None:
        return []

    # An episode that is longer than the budget is a micro-batch of its own.
    tokens = max(max(block.learner.token_budget, block.limits.longest) for block in blocks)
    packed = learner.packing
    product = width(learner.dtype)
    half = product < FLOAT32 and shape.head_dim >= WIDE
    stream = stored(learner)
    copies = packed and not (gpu or half)
    way = Way(stream, product, packed, copies, lean=packed and not gpu and stream == FLOAT32)
    widest = 2 * shape.mlp + 2 * shape.hidden
    passing = tokens * way.product * widest  # comes and goes in the widest layer
    if packed and half and not gpu:
        # scores, their weights and the gradient of these
        longest = max(block.limits.longest for block in blocks)
        least = shape.heads // shape.kv_heads * min(QUERIES, longest) * longest
        passing += 3 * product * min(max(SCORES, least), shape.heads * tokens * longest)
    activations = kept(shape, tokens, way, learner.checkpointing) + passing
    if packed:  # keys and values of the shared part, before each row that goes on from there
        layers = 1 if learner.checkpointing else shape.layers
        number = FLOAT32 if way.copies else way.product
        activations += (SEEN - 1) * tokens * layers * 2 * shape.key * number
    logits = CELL_BYTES * min(CELLS, tokens * shape.vocab)

    needs = [Need("activations", activations, turn=True), Need("logits", logits, turn=True)]
    if way.product < way.stream:
        cast = way.product * model.parameters
        needs.append(Need("weights in bfloat16", cast, turn=True))
    return needs


@dataclass(frozen=True)
class Way:
    """How a learner computes. `stream`: bytes of a number between layers. `product`: bytes of a
    number in matrix products, smaller under autocast. `packed`: rows lie side by side. `copies`:
    attention works on float32 copies and its result is copied (packed rows on a CPU). `lean`: norms
    keep no normalised input (packed rows in float32 on a CPU)."""

    stream: int
    product: int
    packed: bool = False
    copies: bool = False
    lean: bool = False


def kept(shape: Shape, tokens: int, way: Way, checkpointing: bool) -> int:
    """Bytes kept of `tokens` tokens until the backward pass; with checkpointing each layer's input,
    and one layer whole."""
    layer = per_layer(shape, way)
    if checkpointing:
        layers = shape.layers * shape.hidden * way.stream + layer
    else:
        layers = shape.layers * layer
    around = 2 * shape.head_dim * way.stream + 16  # rotary angles, ids and places
    return tokens * (layers + around + _norm(shape.hidden, way))


def per_layer(shape: Shape, way: Way) -> int:
    """Bytes a token of one layer."""
    product = way.product
    heads = shape.query + shape.key

    # Under autocast each of the five products behind a norm has its own copy of the norm's result;
    # packed rows share one.
    copies = 5 if product < way.stream and not way.packed else 2
    norms = 2 * _norm(shape.hidden, way) + copies * shape.hidden * product
    if shape.qk_norm:
        of_heads = replace(way, stream=product, lean=way.lean and product == FLOAT32)
        norms += shape.heads * _norm(shape.head_dim, of_heads)
        norms += shape.kv_heads * _norm(shape.head_dim, of_heads)

    number = 4 if way.copies else product
    attention = number * 2 * heads + 4 * shape.heads
    if way.copies:
        attention += product * shape.query
    return norms + attention + product * 4 * shape.mlp


def _norm(numbers: int, way: Way) -> int:
    """An RMSNorm over so many numbers: its input in float32 and its scale, and, where it is not
    lean, the normalised input in the model's type."""
    normalised = 0 if way.lean else way.stream
    return numbers * (4 + normalised) + 4
