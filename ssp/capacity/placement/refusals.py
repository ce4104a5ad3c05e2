"""What to say when a plan does not fit: what is missing, the table, and one thing to type.

Owns the words. Refuses to change a setting, and to compute which one would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ssp.base.errors import InputError
from ssp.capacity.memory import Need, Process, size
from ssp.capacity.memory.needs import largest
from ssp.capacity.placement import tables
from ssp.capacity.placement.nodes import Node
from ssp.capacity.placement.units import Unit
from ssp.config.schema import Config

if TYPE_CHECKING:
    from ssp.capacity.placement.plan import Plan, Slot

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


def engine_short(process: Process) -> InputError:
    """An engine whose cache cannot hold one episode."""
    more = "raise engine.memory or engine.tensor_parallel, or lower limits.total_tokens"
    return InputError(f"the KV cache of each {process.name} holds one whole episode", process.short, more)


def too_few(wanted: Sequence[Unit], nodes: Sequence[Node]) -> InputError:
    """Not enough GPUs, or not enough on one node."""
    asked, there = sum(unit.gpus for unit in wanted), sum(node.gpus for node in nodes)
    most = max((node.gpus for node in nodes), default=0)
    listed = ", ".join(f"{unit.name} {unit.gpus:g}" for unit in wanted)
    step = "lower placement.proposers, placement.solvers or learner.ranks, or share GPUs (placement.layout=colocate)"
    if not there:
        found = f"no GPU here, {asked:g} are asked for ({listed})"
        step = (
            "describe a cluster for --dry-run (placement.nodes=1x8x80), join one (RAY_ADDRESS), or ask for none: "
            "placement.engine_gpus=0 placement.learner_gpus=0 placement.judge_gpus=0 retriever.gpus=0"
        )
    elif large := [unit for unit in wanted if unit.together and len(unit.bundles) > most]:
        found = f"{large[0].name} wants {len(large[0].bundles)} GPUs on one node, the largest has {most}"
        step = f"set engine.tensor_parallel={most} or less"
    elif asked > there:
        found = f"{there} GPUs, {asked:g} are asked for ({listed}): {asked - there:g} are missing"
    else:
        found = f"{there} GPUs on {len(nodes)} nodes, whose rest fits no whole unit ({listed})"
    return InputError("every unit of the run has its GPUs", found, step)


def too_full(plan: Plan, slot: Slot) -> InputError:
    """More bytes on a GPU than it has: what is on it, the largest part, what to type."""
    node, needed, known = plan.nodes[slot.node], plan.used()[slot], plan.known
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


def host_too_full(cfg: Config, plan: Plan, at: int) -> InputError:
    """More than a node's own memory. Of this machine it is a warning, since what is free there changes by the minute."""
    node, needed = plan.nodes[at], plan.host(at, cfg)
    process = max((plan.known[name] for name in plan.here(at)), key=lambda process: process.on_host)
    need = largest(need for need in process.needs if need.host or not process.gpus)
    found = (
        f"{node.name} needs {size(needed)}, {size(needed - node.host)} more than {'is free' if node.free else 'it has'}; "
        f"the largest process is {process.name} ({size(process.on_host)}), its largest part {need.what} ({size(need.bytes)})"
    )
    place = cfg.placement
    fewer = [
        f"placement.{key}=1" for key in ("solvers", "proposers") if getattr(place, key) > 1 and not place.engine_gpus
    ]
    steps = ["close programs"] * node.free + [f"set {' '.join(fewer)}"] * bool(fewer)
    step = ", or ".join([*steps, "take a smaller model, batch or learner.token_budget"])
    return DoesNotFit("what runs on a host fits its memory", found, step, tables.process_memory(process))


def _smaller(process: Process, need: Need) -> str:
    part = next((step for what, step in SMALLER.items() if need.what.endswith(what)), "")
    if process.name in ("retriever", "encoder"):
        return "use more retriever.shards, or set retriever.gpus=0"
    return part or (STATES if process.name.startswith("learner") else ENGINES)
