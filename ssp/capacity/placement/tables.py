"""The plan as tables, whether its memory suffices, and else what is missing, in a table, with what
to type."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ssp.base.errors import InputError, hold
from ssp.capacity.memory import MB, Process, size
from ssp.capacity.placement.plan import GpuSlot, Plan, lay
from ssp.config.nodes import Node
from ssp.config.schema import Config


def placement(plan: Plan) -> str:
    """A row a GPU: node, GPU, bytes needed of those that are there, who is on it with which
    share."""
    if not plan.placed:
        return "Every process computes on CPUs; Ray spreads them over its nodes."
    known, used, tenants = plan.known, plan.used(), plan.tenants()
    rows = []
    for at, node in enumerate(plan.nodes):
        for gpu in range(node.gpus):
            slot = GpuSlot(at, gpu)
            memory = f"{size(used[slot])} of {size(node.usable)}" if slot in used else "free"
            who = []
            for unit, bundle in tenants.get(slot, []):
                for seat in unit.seats:
                    if seat.bundle == bundle:
                        rank = f" rank {seat.rank}" if known[seat.process].spread > 1 else ""
                        share = "" if seat.gpus == 1 else f" ({seat.gpus:g} of it)"
                        who.append(f"{seat.process} {seat.index}{rank}{share}")
            rows.append((node.name, str(gpu), memory, ", ".join(who)))
    placed = table(("node", "GPU", "memory", "who"), rows)
    anywhere = ", ".join(f"{p.name} x{p.count}" for p in plan.processes if not p.gpus)
    return f"{placed}\nOn CPUs, wherever Ray puts them: {anywhere}."


def gpu_memory(processes: Iterable[Process]) -> str:
    """A row a part of each process on GPUs, on one of its GPUs; a part may be held only while it is
    the process's turn."""
    rows = []
    for process in processes:
        for need in process.needs:
            if not need.host and need.bytes:
                held = "its turn" if need.turn else "always"
                rows.append((process.name, need.what, size(need.bytes), held))
        rows.append((process.name, "in all", size(process.device()), ""))
    return table(("process", "part", "on each GPU", "held"), rows)


def host_memory(plan: Plan, beside: Mapping[str, int]) -> str:
    """A row a kind of process, in MB of host memory, with its large parts, and what there is
    `beside` them."""
    needed = {}
    parts = {}
    for process in plan.processes:
        name = f"{process.name} x{process.count}"
        needed[name] = process.count * process.on_host
        own = [need for need in process.on_its_host if need.what != "process"]
        large = [f"{need.what} {size(need.bytes)}" for need in own if need.bytes >= 100 * MB]
        parts[name] = ", ".join(large)
    needed |= {name: count for name, count in beside.items() if count}
    needed["total"] = sum(needed.values())
    rows = [(name, f"{count / MB:.0f}", parts.get(name, "")) for name, count in needed.items()]
    return table(("what", "MB", ""), rows)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns with two blanks between; those of numbers alone lie to the right."""
    columns = []
    for column in zip(header, *rows, strict=True):
        width = max(map(len, column))
        numbers = all(cell.replace(".", "").isdigit() for cell in column[1:])
        columns.append([f"{cell:>{width}}" if numbers else f"{cell:{width}}" for cell in column])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


class DoesNotFit(InputError):
    """Memory does not suffice; `table` says of what, a row a part."""

    def __init__(self, rule: str, value: object, next_step: str, table: str) -> None:
        super().__init__(rule, value, next_step)
        self.table = table


def make(cfg: Config, nodes: Sequence[Node]) -> Plan:
    """As `lay`, and `fits`."""
    plan = lay(cfg, nodes)
    fits(cfg, plan)
    return plan


def fits(cfg: Config, plan: Plan) -> None:
    """InputError where memory does not suffice; what is only `short` passes."""
    step = "raise engine.memory or engine.tensor_parallel, or lower limits.total_tokens"
    for process in plan.processes:
        rule = f"the KV cache of each {process.name} holds one whole episode"
        hold(not process.short, rule, process.short, step)
    for slot, needed in plan.used().items():
        if needed > plan.nodes[slot.node].usable:
            raise _too_full(plan, slot, needed)
    for is_warning, error in _full_hosts(cfg, plan):
        if not is_warning:
            raise error


def short(cfg: Config, plan: Plan) -> list[str]:
    """Warnings: of a machine whose free memory is less than its processes on CPUs need; [] where it
    suffices."""
    warnings = []
    for is_warning, error in _full_hosts(cfg, plan):
        if is_warning:
            risk = "The run may end for want of memory"
            warnings.append(f"{error.found}. {risk}: {error.next_step}")
    return warnings


def _too_full(plan: Plan, slot: GpuSlot, needed: int) -> DoesNotFit:
    """More bytes on a GPU than it has."""
    node = plan.nodes[slot.node]
    there = {}
    for unit, bundle in plan.tenants()[slot]:
        for seat in unit.seats:
            if seat.bundle == bundle:
                there[seat.process] = plan.known[seat.process]
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
        needed = plan.host(at, cfg)
        if not 0 < node.host < needed:
            continue
        seated = plan.seated(at)
        there = [p for p in plan.processes if p.name in seated or not (at or p.gpus)]
        blame = "Ray's object store"
        parts: list[tuple[str, str, str]] = []
        if there:
            largest = max(there, key=lambda process: process.on_host)
            blame = f"the largest process is {largest.name} ({size(largest.on_host)})"
            parts = [(largest.name, need.what, size(need.bytes)) for need in largest.on_its_host]

        than = "is free" if node.free else "it has"
        more = f"{size(needed - node.host)} more than {than}"
        step = (
            "set placement.solvers=1 placement.proposers=1, a smaller model, batch or"
            " learner.token_budget"
        )
        if node.free:
            step = f"close programs, or {step}"
        error = DoesNotFit(
            "what runs on a host fits its memory",
            f"{node.name} needs {size(needed)}, {more}; {blame}",
            step,
            table(("process", "part", "on its host"), parts),
        )
        yield node.free and not seated, error
