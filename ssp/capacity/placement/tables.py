"""The plan as tables, whether its memory suffices, and else what is missing, in a table, with what
to type."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ssp.base.errors import InputError, hold
from ssp.capacity.memory import MB, Process, size
from ssp.capacity.placement.plan import GpuSlot, Plan, lay
from ssp.config.nodes import Node
from ssp.config.schema import Config


def placement(plan: Plan) -> str:
    """A row a GPU: node, GPU, who is on it with which share, bytes needed of those that are
    there."""
    if not plan.placed:
        return "Every process computes on CPUs; Ray spreads them over its nodes."
    rows, used = [], plan.used()
    for at, node in enumerate(plan.nodes):
        for gpu in range(node.gpus):
            slot = GpuSlot(at, gpu)
            needed = f"{size(used[slot])} of {size(node.usable)}" if slot in used else "free"
            rows.append((node.name, str(gpu), needed, _tenants(plan, slot)))
    anywhere = ", ".join(f"{p.name} x{p.count}" for p in plan.processes if not p.gpus)
    placed = table(("node", "GPU", "memory", "who"), rows)
    return f"{placed}\nOn CPUs, wherever Ray puts them: {anywhere}."


def gpu_memory(processes: Iterable[Process]) -> str:
    """A row a part of each process on GPUs, on one of its GPUs; a part may be held only while it is
    the process's turn."""
    rows = []
    for process in processes:
        parts = [need for need in process.needs if not need.host and need.bytes]
        rows += [
            (process.name, n.what, size(n.bytes), "its turn" if n.turn else "always") for n in parts
        ]
        rows.append((process.name, "in all", size(process.device()), ""))
    return table(("process", "part", "on each GPU", "held"), rows)


def host_memory(plan: Plan, beside: Mapping[str, int]) -> str:
    """A row a kind of process, in MB of host memory, with its large parts, and what there is
    `beside` them."""
    rows = []
    for process in plan.processes:
        large = [
            need
            for need in process.on_its_host
            if need.what != "process" and need.bytes >= 100 * MB
        ]
        parts = ", ".join(f"{need.what} {size(need.bytes)}" for need in large)
        rows.append((f"{process.name} x{process.count}", process.count * process.on_host, parts))
    rows += [(name, count, "") for name, count in beside.items() if count]
    rows.append(("total", sum(count for _, count, _ in rows), ""))
    return table(
        ("what", "MB", ""), [(name, f"{count / MB:.0f}", parts) for name, count, parts in rows]
    )


def _tenants(plan: Plan, slot: GpuSlot) -> str:
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
    cells = [
        [t.rjust(w) if r else t.ljust(w) for t, w, r in zip(line, widths, right, strict=True)]
        for line in lines
    ]
    return "\n".join("  ".join(line).rstrip() for line in cells)


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
        found, step = (
            process.short,
            "raise engine.memory or engine.tensor_parallel, or lower limits.total_tokens",
        )
        hold(
            not process.short,
            f"the KV cache of each {process.name} holds one whole episode",
            found,
            step,
        )
    for slot, needed in plan.used().items():
        if needed > plan.nodes[slot.node].usable:
            raise _too_full(plan, slot, needed)
    for spares, error in _full_hosts(cfg, plan):
        if not spares:
            raise error


def short(cfg: Config, plan: Plan) -> list[str]:
    """Warnings: of a machine whose free memory is less than its processes on CPUs need; [] where it
    suffices."""
    told = [error for spares, error in _full_hosts(cfg, plan) if spares]
    return [
        f"{error.found}. The run may end for want of memory: {error.next_step}" for error in told
    ]


def _too_full(plan: Plan, slot: GpuSlot, needed: int) -> DoesNotFit:
    """More bytes on a GPU than it has."""
    node = plan.nodes[slot.node]
    seats = [
        seat
        for unit, bundle in plan.tenants()[slot]
        for seat in unit.seats
        if seat.bundle == bundle
    ]
    there = {seat.process: plan.known[seat.process] for seat in seats}
    return DoesNotFit(
        f"what is on a GPU fits its {size(node.usable)}",
        f"GPU {slot.gpu} of {node.name} needs {size(needed)}, {size(needed - node.usable)} too"
        f" much: {' and '.join(there)}",
        "lower learner.token_budget or engine.memory, set learner.checkpointing=true or"
        " learner.offload=all, train adapters (learner.lora.rank=64), or take more ranks or a"
        " smaller model",
        gpu_memory(there.values()),
    )


def _full_hosts(cfg: Config, plan: Plan) -> Iterator[tuple[bool, DoesNotFit]]:
    """Each node whose own memory is known and less than is needed. With it, whether that is only a
    warning: the memory is what is free now, which changes by the minute, and all that runs there
    computes on CPUs."""
    for at, node in enumerate(plan.nodes):
        needed, seated = plan.host(at, cfg), plan.seated(at)
        if not 0 < node.host < needed:
            continue
        there = [
            process
            for process in plan.processes
            if process.name in seated or not (at or process.gpus)
        ]
        process = max(there, key=lambda process: process.on_host, default=None)
        largest = (
            f"the largest process is {process.name} ({size(process.on_host)})"
            if process
            else "Ray's object store"
        )
        than = "is free" if node.free else "it has"
        found = (
            f"{node.name} needs {size(needed)}, {size(needed - node.host)} more than {than};"
            f" {largest}"
        )
        step = (
            "set placement.solvers=1 placement.proposers=1, a smaller model, batch or"
            " learner.token_budget"
        )
        step = f"close programs, or {step}" if node.free else step
        parts = (
            [(process.name, need.what, size(need.bytes)) for need in process.on_its_host]
            if process
            else []
        )
        told = table(("process", "part", "on its host"), parts)
        yield (
            node.free and not seated,
            DoesNotFit("what runs on a host fits its memory", found, step, told),
        )
