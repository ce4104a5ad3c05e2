"""What to say when a plan does not fit: what is missing, the table, and what to type.

Owns the words. Refuses to change a setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ssp.config.schema import Config
from ssp.errors import InputError
from ssp.memory import Need, Process, learners, size
from ssp.memory.processes import FLEET
from ssp.placement import tables
from ssp.placement.nodes import Node
from ssp.placement.units import Unit

if TYPE_CHECKING:
    from ssp.placement.plan import Plan, Slot


class DoesNotFit(InputError):
    """Memory does not suffice; `table` says of what, a row a part."""

    def __init__(self, rule: str, found: object, next_step: str, table: str) -> None:
        super().__init__(rule, found, next_step)
        self.table = table


OFFLOADED = ("master weights", "moments", "gradients in float32")
"""What offload=optimizer takes off a GPU."""
STATES = ("weights", "gradients", "master weights", "moments", "gradients in float32", "critic", "reference")


def engine_short(cfg: Config, process: Process) -> InputError:
    """An engine whose cache cannot hold one episode."""
    role = _engine_role(process.name)
    more = f"raise {role}.engine.memory or {role}.engine.tensor_parallel, or lower {role}.limits.total_tokens"
    return InputError(f"the KV cache of each {process.name} holds one whole episode", process.short, more)


def too_few(wanted: Sequence[Unit], nodes: Sequence[Node]) -> InputError:
    """Not enough GPUs, or not enough on one node."""
    asked, there = sum(unit.gpus for unit in wanted), sum(node.gpus for node in nodes)
    most = max((node.gpus for node in nodes), default=0)
    listed = ", ".join(f"{unit.name} {unit.gpus:g}" for unit in wanted)
    rule = "every unit of the run has its GPUs"
    if not there:
        found = f"no GPU here, {asked:g} are asked for ({listed})"
        step = (
            "describe a cluster for --dry-run (placement.nodes=1x8x80), join one (RAY_ADDRESS), or ask for none: "
            + ("placement.engine_gpus=0 placement.learner_gpus=0 placement.judge_gpus=0 retriever.gpus=0")
        )
        return InputError(rule, found, step)
    for unit in wanted:
        if unit.together and len(unit.bundles) > most:
            found = f"{unit.name} wants {len(unit.bundles)} GPUs on one node, the largest has {most}"
            role = _engine_role(unit.name.rpartition("-")[0])
            return InputError(rule, found, f"set {role}.engine.tensor_parallel={max(most, 1)} or less")
    step = (
        "lower placement.proposers, placement.solvers or learner.ranks, let roles share GPUs (placement.layout=colocate), "
        "or use more nodes (placement.nodes)"
    )
    if asked > there:
        found = f"{there} GPUs, {asked:g} are asked for ({listed}): {asked - there:g} are missing"
        return InputError(rule, found, step)
    found = f"{there} GPUs on {len(nodes)} nodes, whose rest fits no whole unit ({listed})"
    return InputError(rule, found, step)


def too_full(cfg: Config, plan: Plan, slot: Slot) -> InputError:
    """More bytes on a GPU than it has: what is on it, the largest part, what to type."""
    node, needed = plan.nodes[slot.node], plan.used()[slot]
    known = plan.known
    there = [
        known[seat.process] for unit, bundle in plan.tenants()[slot] for seat in unit.seats if seat.bundle == bundle
    ]
    process, need = max(
        ((process, need) for process in there for need in process.needs if not need.host),
        key=lambda pair: pair[1].bytes,
    )
    who = " and ".join(dict.fromkeys(f"{other.name} ({size(other.device())})" for other in there))
    return DoesNotFit(
        f"what is on a GPU fits its {size(node.usable)}",
        f"GPU {slot.gpu} of {node.name} needs {size(needed)}, {size(needed - node.usable)} too much, for {who}",
        f"the largest part is {process.name}'s {need.what}, {size(need.bytes)}: {_hint(cfg, process, need)}",
        tables.gpu_memory({other.name: other for other in there}.values()),
    )


def host_too_full(needed: int, there: int, where: str, process: Process, need: Need) -> InputError:
    """More than a host's memory; `process` is the largest one there, `need` its largest part."""
    found = (
        f"{where} needs {size(needed)}, {size(needed - there)} more than it has; the largest process is {process.name} "
        f"({size(process.on_host)})"
    )
    step = (
        f"the largest part is its {need.what}, {size(need.bytes)}: describe the cluster (placement.nodes) and give engines "
        "and learners GPUs, or take a smaller model, batch or learner.token_budget, or fewer placement.*"
    )
    return DoesNotFit("what runs on a host fits its memory", found, step, tables.process_memory(process))


def _engine_role(process: str) -> str:
    return "solver" if process in (FLEET, "judge") else process


def _hint(cfg: Config, process: Process, need: Need) -> str:
    """The first setting that would make this part smaller and is not used yet."""
    roles = learners(cfg).get(process.name)
    if roles is None:
        return _engine_hint(cfg, process, need)
    learner, role = cfg.block(roles[0]).learner, roles[0]
    if need.what == "activations":
        if not learner.checkpointing:
            return f"set {role}.learner.checkpointing=true"
        return _fewer_tokens(cfg, roles)
    if need.what == "logits":
        return _fewer_tokens(cfg, roles)
    if need.what == "reference":
        return (
            f"train adapters ({role}.learner.lora.rank=64: the base itself is the reference), or set {role}.kl.coef=0"
        )
    if learner.kind != "deepspeed":
        return f"set {role}.learner.kind=deepspeed {role}.learner.ranks=2 {role}.learner.zero=3"
    if need.what in STATES and learner.zero < 3 and learner.ranks > 1:
        return f"set {role}.learner.zero=3"
    if learner.offload == "none" and need.what in OFFLOADED:
        return f"set {role}.learner.offload=optimizer, or more {role}.learner.ranks"
    if learner.offload != "all":
        stage = "" if learner.zero == 3 else f"{role}.learner.zero=3 "
        return f"set {stage}{role}.learner.offload=all, or more {role}.learner.ranks"
    if learner.lora.rank:
        return f"use more {role}.learner.ranks, GPUs that hold more, or a smaller {role}.model"
    return f"use more {role}.learner.ranks, or {role}.learner.lora.rank=64"


def _fewer_tokens(cfg: Config, roles: Sequence[str]) -> str:
    """Half the budget, but a whole episode: that is never cut."""
    budget, episode = cfg.block(roles[0]).learner.token_budget, max(cfg.block(r).limits.total_tokens for r in roles)
    if budget <= episode:
        return f"lower {roles[-1]}.limits.total_tokens: an episode is a micro-batch at least"
    return f"set {roles[0]}.learner.token_budget={max(budget // 2, episode)}"


def _engine_hint(cfg: Config, process: Process, need: Need) -> str:
    role = _engine_role(process.name)
    if process.name in ("retriever", "encoder"):
        return "use more retriever.shards, or set retriever.gpus=0"
    if need.what.endswith("weights"):
        return f"set {role}.engine.tensor_parallel={2 * cfg.block(role).engine.tensor_parallel}"
    if need.what.endswith("KV cache") and cfg.block(role).engine.kind == "vllm":
        return f"lower {role}.engine.memory (or {role}.engine.kv_mb)"
    return f"lower {role}.engine.sequences, or use more engines (placement.{role}s)"
