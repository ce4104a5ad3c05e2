"""Whether the memory of a plan's nodes suffices; else what is missing, the table, and one thing to type."""

from __future__ import annotations

from collections.abc import Sequence

from ssp.base.errors import InputError
from ssp.capacity.memory import Need, Process, size
from ssp.capacity.placement import tables
from ssp.capacity.placement.plan import Plan, Slot, lay
from ssp.config.nodes import Node
from ssp.config.schema import Config

SMALLER = {
    "activations": "set learner.checkpointing=true, or lower learner.token_budget",
    "logits": "lower learner.token_budget",
    "reference": "train adapters (learner.lora.rank=64), or set kl.coef=0",
    "KV cache": "lower engine.memory or engine.kv_mb, or use more players",
}
"""Part of a process → what makes it smaller, of that role."""
STATES = (
    "use more learner.ranks (learner.zero=3), learner.offload=all, adapters (learner.lora.rank=64) or a smaller model"
)
ENGINES = "raise engine.tensor_parallel, or take a smaller model"


class DoesNotFit(InputError):
    """Memory does not suffice; `table` says of what, a row a part."""

    def __init__(self, rule: str, found: object, next_step: str, table: str) -> None:
        super().__init__(rule, found, next_step)
        self.table = table


def make(cfg: Config, nodes: Sequence[Node]) -> Plan:
    """As `lay`, and `fits`."""
    plan = lay(cfg, nodes)
    fits(cfg, plan)
    return plan


def fits(cfg: Config, plan: Plan) -> None:
    """InputError where memory does not suffice; what is only `short` passes."""
    for process in plan.processes:
        if process.short:
            more = "raise engine.memory or engine.tensor_parallel, or lower limits.total_tokens"
            raise InputError(f"the KV cache of each {process.name} holds one whole episode", process.short, more)
    for slot, needed in plan.used().items():
        if needed > plan.nodes[slot.node].usable:
            raise _too_full(plan, slot, needed)
    for at in _full_hosts(cfg, plan):
        if not _spares(plan, at):
            raise _host_too_full(cfg, plan, at)


def short(cfg: Config, plan: Plan) -> list[str]:
    """A warning for a machine whose free memory is less than its processes on CPUs need; [] where it suffices."""
    found = [_host_too_full(cfg, plan, at) for at in _full_hosts(cfg, plan) if _spares(plan, at)]
    return [f"{error.found}. The run may end for want of memory: {error.next_step}" for error in found]


def _full_hosts(cfg: Config, plan: Plan) -> list[int]:
    """Nodes whose own memory is known, and less than is needed."""
    return [at for at, node in enumerate(plan.nodes) if 0 < node.host < plan.host(at, cfg)]


def _spares(plan: Plan, at: int) -> bool:
    """Whether the memory of that node is only what is free now, and all that runs there computes on CPUs."""
    return plan.nodes[at].free and not plan.seated(at)


def _too_full(plan: Plan, slot: Slot, needed: int) -> InputError:
    """More bytes on a GPU than it has: what is on it, the largest part, what to type."""
    node, known = plan.nodes[slot.node], plan.known
    there = [
        known[seat.process] for unit, bundle in plan.tenants()[slot] for seat in unit.seats if seat.bundle == bundle
    ]
    parts = [(process, need) for process in there for need in process.needs if not need.host]
    process, need = max(parts, key=lambda pair: pair[1].bytes)
    who = " and ".join(dict.fromkeys(f"{other.name} ({size(other.device())})" for other in there))
    return DoesNotFit(
        f"what is on a GPU fits its {size(node.usable)}",
        f"GPU {slot.gpu} of {node.name} needs {size(needed)}, {size(needed - node.usable)} too much, for {who}",
        f"the largest part is {process.name}'s {need.what}, {size(need.bytes)}: {_smaller(process, need)}",
        tables.gpu_memory({other.name: other for other in there}.values()),
    )


def _host_too_full(cfg: Config, plan: Plan, at: int) -> DoesNotFit:
    """More than a node's own memory. Of this machine it is a warning, since what is free there changes by the minute."""
    node, needed = plan.nodes[at], plan.host(at, cfg)
    process = max((plan.known[name] for name in plan.here(at)), key=lambda process: process.on_host)
    need = process.on_its_host[0]
    found = (
        f"{node.name} needs {size(needed)}, {size(needed - node.host)} more than {'is free' if node.free else 'it has'}; "
        f"the largest process is {process.name} ({size(process.on_host)}), its largest part {need.what} ({size(need.bytes)})"
    )
    place, steps = cfg.placement, ["close programs"] * node.free
    if few := [f"placement.{key}=1" for key in ("solvers", "proposers") if getattr(place, key) > 1]:
        steps += [f"set {' '.join(few)}"] * (not place.engine_gpus)
    step = ", or ".join([*steps, "take a smaller model, batch or learner.token_budget"])
    return DoesNotFit("what runs on a host fits its memory", found, step, tables.process_memory(process))


def _smaller(process: Process, need: Need) -> str:
    if process.name in ("retriever", "encoder"):
        return "use more retriever.shards, or set retriever.gpus=0"
    part = next((step for what, step in SMALLER.items() if need.what.endswith(what)), "")
    return part or (STATES if process.name.startswith("learner") else ENGINES)
