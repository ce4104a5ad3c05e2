"""What one rank of a learner needs.

Owns the sums over ZeRO stages, offload, adapters, reference, critic and activations. Promises that weights, gradients and
optimizer states of a torch learner are exact (tests sum its tensors). Refuses to know placement.

Sources: Rajbhandari et al. 2020 (arXiv 1910.02054), section 3.1: AdamW holds 12 bytes a trained parameter in mixed precision
(master weight, two moments), and stage 1 cuts these by the ranks, stage 2 the gradients too, stage 3 the weights too.
Hu et al. 2021 (arXiv 2106.09685): adapters alone have gradients and states.
"""

from __future__ import annotations

from collections.abc import Sequence

from ssp.config.role import LearnerConfig, RoleConfig
from ssp.memory import activations
from ssp.memory.needs import Need
from ssp.memory.shapes import Model

FLOAT32, BFLOAT16 = 4, 2
BUCKET = 500_000_000
"""Numbers in DeepSpeed's buffers for reducing and gathering (reduce_bucket_size, allgather_bucket_size)."""
LIVE = 1_000_000_000
"""Weights that stage 3 holds gathered at a time (stage3_max_live_parameters)."""


def width(dtype: str) -> int:
    """Bytes of a number of that type."""
    return BFLOAT16 if dtype == "bfloat16" else FLOAT32


def rank(model: Model, blocks: Sequence[RoleConfig]) -> tuple[Need, ...]:
    """The needs of one rank that trains `blocks`: a role, or two that share one policy (then the first one's learner)."""
    block = blocks[0]
    learner = block.learner
    numbers = width(learner.dtype)
    trained = trainable(model, learner)
    needs = [*states(model.parameters, trained, learner), *_references(model, blocks)]
    if block.algorithm == "gae":
        needs.append(Need("critic", sum(n.bytes for n in states(critic(model), critic(model), learner))))
    # An episode that is longer than the budget is a micro-batch of its own.
    tokens = max(max(b.learner.token_budget, b.limits.longest) for b in blocks)
    if model.shape is not None:
        held = activations.kept(model.shape, tokens, numbers, learner.checkpointing)
        needs += [
            Need("activations", held + activations.passing(model.shape, tokens, numbers), turn=True),
            Need("logits", activations.logits(model.shape, tokens), turn=True),
        ]
    # Each rank reads the whole model once; the first one also holds it when it publishes and saves.
    return (*needs, Need("whole weights", model.parameters * FLOAT32, host=True))


def frozen(model: Model) -> tuple[Need, ...]:
    """Of a learner whose policy does not learn: it only holds and publishes the weights."""
    return (Need("weights", model.parameters * FLOAT32),)


def trainable(model: Model, learner: LearnerConfig) -> int:
    """Parameters that have a gradient."""
    lora = learner.lora
    if not lora.rank or model.shape is None:
        return model.parameters
    return model.shape.adapter(lora.rank, lora.targets)


def critic(model: Model) -> int:
    """Parameters of a value model: the policy's without its own output matrix, and a head."""
    if model.shape is None:
        return model.parameters
    shape = model.shape
    return model.parameters - (0 if shape.tied else shape.vocab * shape.hidden) + shape.hidden + 1


def states(parameters: int, trained: int, learner: LearnerConfig) -> list[Need]:
    """Weights, gradients and optimizer of one rank."""
    numbers, stage = width(learner.dtype), learner.zero if learner.kind == "deepspeed" else 0
    ranks = learner.ranks if stage else 1
    by_stage = {at: ranks if stage >= at else 1 for at in (1, 2, 3)}
    away = learner.offload != "none"
    weights = numbers * (parameters if trained == parameters else parameters + trained)
    needs = [
        Need("weights", -(-weights // by_stage[3]), host=learner.offload == "all"),
        Need("gradients", -(-numbers * trained // by_stage[2]), turn=True),
    ]
    if learner.dtype != "float32" or stage:
        needs.append(Need("master weights", -(-FLOAT32 * trained // by_stage[1]), host=away))
    needs.append(Need("moments", -(-2 * FLOAT32 * trained // by_stage[1]), host=away))
    if stage:
        needs += _buffers(parameters, trained, learner, ranks)
    return needs


def _buffers(parameters: int, trained: int, learner: LearnerConfig, ranks: int) -> list[Need]:
    """What DeepSpeed holds beside the states while it works."""
    numbers = width(learner.dtype)
    bucket = min(trained, BUCKET) * numbers
    gathered = min(parameters, LIVE) * numbers if learner.zero == 3 else bucket
    # The step works on a float32 copy of the gradients of its part.
    step = Need("gradients in float32", -(-FLOAT32 * trained // ranks), host=learner.offload != "none", turn=True)
    return [Need("buffers", bucket + gathered, turn=True), step]


def _references(model: Model, blocks: Sequence[RoleConfig]) -> list[Need]:
    """The models of the KL terms. Of a policy with adapters it is the base itself; one that moves has float32 masters."""
    total = 0
    for block in blocks:
        numbers, trained = width(block.learner.dtype), trainable(model, block.learner)
        if block.kl.coef == 0:
            continue
        whole = trained == model.parameters
        total += model.parameters * numbers if whole else 0
        if block.kl.ema_tau < 1 and not (whole and numbers == FLOAT32):
            total += trained * (FLOAT32 if whole else FLOAT32 + numbers)
    return [Need("reference", total)] if total else []
