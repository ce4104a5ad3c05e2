"""The plan as tables: what is on each node and GPU, what each process and each GPU needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ssp.capacity.memory import MB, Process, size
from ssp.capacity.placement.plan import Plan, Slot
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
