"""The plan as tables: what is on each node and GPU, what each process and each GPU needs; and whether their memory suffices:
else what is missing, the table, and one thing to type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ssp.base.errors import InputError
from ssp.capacity.memory import MB, Need, Process, size
from ssp.capacity.placement.plan import Plan, Slot, lay
from ssp.config.nodes import Node
from ssp.config.schema import Config


def placement(cfg: Config, plan: Plan) -> str:
    """A row a GPU: node, GPU, who is on it with which share, bytes needed of those that are there."""
    if not plan.placed:
        gpus = sum(node.gpus for node in plan.nodes)
        idle = f" {gpus} GPUs are not used (placement.engine_gpus, placement.learner_gpus)." if gpus else ""
        return f"Every process computes on CPUs; Ray spreads them over its nodes.{idle}"
    rows, used = [], plan.used()
    for at, node in enumerate(plan.nodes):
        for gpu in range(node.gpus):
            slot = Slot(at, gpu)
            needed = f"{size(used[slot])} of {size(node.usable)}" if slot in used else "free"
            rows.append((node.name, str(gpu), needed, _tenants(plan, slot)))
    lines = [table(("node", "GPU", "memory", "who"), rows)]
    anywhere = [f"{p.name} x{p.count}" for p in plan.processes if not p.gpus]
    lines.append(f"On CPUs, wherever Ray puts them: {', '.join(anywhere)}.")
    if cfg.placement.layout != "separate" and any(unit.turns for unit, _ in plan.placed):
        lines.append("Who shares a GPU takes turns: engines sleep while learners work, so the largest turn counts.")
    return "\n".join(lines)


def gpu_memory(processes: Iterable[Process]) -> str:
    """A row a part of each process on GPUs, on one of its GPUs; a part may be held only while it is the process's turn."""
    rows = []
    for process in processes:
        parts = [need for need in process.needs if not need.host and need.bytes]
        rows += [(process.name, n.what, size(n.bytes), "its turn" if n.turn else "always") for n in parts]
        rows.append((process.name, "in all", size(process.device()), ""))
    return table(("process", "part", "on each GPU", "held"), rows)


def process_memory(process: Process) -> str:
    """A row a part of one process, on its host, largest first."""
    rows = [(process.name, need.what, size(need.bytes)) for need in process.on_its_host]
    return table(("process", "part", "on its host"), rows)


def host_memory(plan: Plan, beside: Mapping[str, int]) -> str:
    """A row a kind of process, in MB of host memory, with its large parts, and what there is `beside` them."""
    rows = []
    for process in plan.processes:
        large = [need for need in process.on_its_host if need.what != "process" and need.bytes >= 100 * MB]
        parts = ", ".join(f"{need.what} {size(need.bytes)}" for need in large)
        rows.append((f"{process.name} x{process.count}", process.count * process.on_host, parts))
    rows += [(name, count, "") for name, count in beside.items() if count]
    rows.append(("total", sum(count for _, count, _ in rows), ""))
    return table(("what", "MB", ""), [(name, f"{count / MB:.0f}", parts) for name, count, parts in rows])


def _tenants(plan: Plan, slot: Slot) -> str:
    words = []
    for unit, bundle in plan.tenants().get(slot, []):
        for seat in (seat for seat in unit.seats if seat.bundle == bundle):
            rank = f" rank {seat.rank}" if plan.known[seat.process].spread > 1 else ""
            share = "" if seat.gpus == 1 else f" ({seat.gpus:g} of it)"
            words.append(f"{seat.process} {seat.index}{rank}{share}")
    return ", ".join(words)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns with two blanks between; those of numbers alone lie to the right."""
    lines = [tuple(header), *map(tuple, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    right = [all(row[i].replace(".", "").isdigit() for row in rows) for i in range(len(header))]
    cells = [[t.rjust(w) if r else t.ljust(w) for t, w, r in zip(line, widths, right, strict=True)] for line in lines]
    return "\n".join("  ".join(line).rstrip() for line in cells)


SMALLER = {
    "activations": "set learner.checkpointing=true, or lower learner.token_budget",
    "logits": "lower learner.token_budget",
    "reference": "train adapters (learner.lora.rank=64), or set kl.coef=0",
    "KV cache": "lower engine.memory or engine.kv_mb, or use more players",
    "index": "use more retriever.shards, or set retriever.gpus=0",
    "": "use more learner.ranks (learner.zero=3), learner.offload=all, adapters (learner.lora.rank=64), a smaller model, or "
    "a higher engine.tensor_parallel",
}
"""End of a part's name → what makes it smaller; the first that fits."""


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
    """More bytes on a GPU than it has: what is on it, and what makes its largest part smaller."""
    node, known = plan.nodes[slot.node], plan.known
    seats = [seat for unit, bundle in plan.tenants()[slot] for seat in unit.seats if seat.bundle == bundle]
    there = {seat.process: known[seat.process] for seat in seats}
    parts: list[tuple[Need, Process]] = [
        (n, process) for process in there.values() for n in process.needs if not n.host
    ]
    need, process = max(parts, key=lambda pair: pair[0].bytes)
    return DoesNotFit(
        f"what is on a GPU fits its {size(node.usable)}",
        f"GPU {slot.gpu} of {node.name} needs {size(needed)}, {size(needed - node.usable)} too much: {' and '.join(there)}",
        f"the largest part is {process.name}'s {need.what}, {size(need.bytes)}: "
        + next(step for what, step in SMALLER.items() if need.what.endswith(what)),
        gpu_memory(there.values()),
    )


def _host_too_full(cfg: Config, plan: Plan, at: int) -> DoesNotFit:
    """More than a node's own memory. Of this machine it is a warning, since what is free there changes by the minute."""
    node, needed, seated = plan.nodes[at], plan.host(at, cfg), plan.seated(at)
    there = [process for process in plan.processes if process.name in seated or not (at or process.gpus)]
    process = max(there, key=lambda process: process.on_host)
    found = (
        f"{node.name} needs {size(needed)}, {size(needed - node.host)} more than {'is free' if node.free else 'it has'}; "
        f"the largest process is {process.name} ({size(process.on_host)})"
    )
    few = "" if cfg.placement.engine_gpus else "placement.solvers=1 placement.proposers=1, "
    step = f"{'close programs, or ' * node.free}set {few}a smaller model, batch or learner.token_budget"
    return DoesNotFit("what runs on a host fits its memory", found, step, process_memory(process))
