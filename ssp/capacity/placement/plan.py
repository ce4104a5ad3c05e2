"""Which unit goes to which node and GPU, and whether it fits there.

Owns the choice. Promises that no GPU is given out twice, that every unit is placed once, that the same description gives
the same plan, and that what does not fit is refused with what is missing and what to type. Refuses to talk to a cluster
(`actors.placement` makes placement groups of a plan).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ssp.capacity.memory import MB, Process, processes, services
from ssp.capacity.memory.services import BASE_MB
from ssp.capacity.placement import refusals
from ssp.capacity.placement.nodes import Node, smallest_gpu
from ssp.capacity.placement.units import Unit, needs_of, units
from ssp.config.schema import Config

SLACK = 1e-6


@dataclass(frozen=True)
class Slot:
    """One bundle's place: node and GPU by number."""

    node: int
    gpu: int


@dataclass(frozen=True)
class Plan:
    """The units with a slot for each bundle, on `nodes`, for `processes`. What has no unit computes on CPUs, anywhere."""

    nodes: list[Node]
    processes: list[Process]
    placed: list[tuple[Unit, tuple[Slot, ...]]]

    @property
    def known(self) -> dict[str, Process]:
        """Processes by name."""
        return {process.name: process for process in self.processes}

    def tenants(self) -> dict[Slot, list[tuple[Unit, int]]]:
        """GPU → the (unit, bundle) that are on it."""
        found: dict[Slot, list[tuple[Unit, int]]] = {}
        for unit, slots in self.placed:
            for bundle, slot in enumerate(slots):
                found.setdefault(slot, []).append((unit, bundle))
        return dict(sorted(found.items(), key=lambda item: (item[0].node, item[0].gpu)))

    def used(self) -> dict[Slot, int]:
        """GPU → bytes that are needed on it."""
        known = self.known
        return {
            slot: sum(needs_of(unit, known, bundle) for unit, bundle in there) for slot, there in self.tenants().items()
        }

    def seated(self, node: int) -> dict[str, int]:
        """Processes on GPUs of that node: name → how many have their first GPU there."""
        found: dict[str, int] = {}
        for unit, slots in self.placed:
            for seat in unit.seats:
                if seat.rank == 0 and slots[seat.bundle].node == node:
                    found[seat.process] = found.get(seat.process, 0) + 1
        return found

    def here(self, node: int) -> dict[str, int]:
        """As `seated`; the first node is also counted for what computes on CPUs, wherever Ray puts that."""
        found = self.seated(node)
        if node == 0:
            found |= {process.name: process.count for process in self.processes if not process.gpus}
        return found

    def spares(self, node: int) -> bool:
        """Whether the memory of that node is only what is free now, and all that runs there computes on CPUs."""
        return self.nodes[node].free and not self.seated(node)

    def host(self, node: int, cfg: Config) -> int:
        """Bytes in the memory of that node: its processes, Ray, the object store; on the first one the coordinator too."""
        known = self.known
        own = sum(count * known[name].on_host for name, count in self.here(node).items())
        return own + sum(beside(cfg, first=node == 0).values())


@dataclass
class _Free:
    """What is left of each GPU of one node."""

    gpus: list[float] = field(default_factory=list)

    def fit(self, wanted: Sequence[float]) -> list[int] | None:
        """A GPU for each bundle, in order, the fullest that has room; None when they do not all fit. Nothing is taken."""
        left, chosen = list(self.gpus), []
        for share in wanted:
            open_ = [i for i, free in enumerate(left) if free >= share - SLACK]
            if not open_:
                return None
            best = min(open_, key=lambda i: (left[i], i))
            left[best] -= share
            chosen.append(best)
        return chosen

    def take(self, wanted: Sequence[float], chosen: Sequence[int]) -> None:
        """Give these GPUs out."""
        for share, i in zip(wanted, chosen, strict=True):
            self.gpus[i] -= share


def beside(cfg: Config, first: bool = True) -> dict[str, int]:
    """Bytes on a node beside the actors: Ray, its store; on the `first` one also the coordinator, and weights on their way
    to players in shared files."""
    found = {"Ray itself": BASE_MB["ray"] * MB, "object store, at most": cfg.ray.object_store_mb * 10**6}
    if first and cfg.ray.dashboard:
        found["Ray's dashboard"] = BASE_MB["dashboard"] * MB
    if first:
        found["coordinator (the process of ssp train)"] = BASE_MB["driver"] * MB
        published, store = services.published(cfg), found["object store, at most"]
        if cfg.transfer.kind == "shm" or (
            cfg.transfer.kind == "auto" and published > store
        ):  # else they are in the store
            found["weights on their way to players"] = published
    return found


def lay(cfg: Config, nodes: Sequence[Node]) -> Plan:
    """The plan of a run of `cfg` on `nodes`, whether or not their memory suffices. InputError when GPUs do not."""
    found = processes(cfg, smallest_gpu(nodes))
    wanted = units(cfg, found)
    slots = assign(wanted, [node.gpus for node in nodes])
    if slots is None:
        raise refusals.too_few(wanted, nodes)
    return Plan(list(nodes), found, [(unit, slots[unit.name]) for unit in wanted])


def make(cfg: Config, nodes: Sequence[Node]) -> Plan:
    """As `lay`, and `fits`."""
    plan = lay(cfg, nodes)
    fits(cfg, plan)
    return plan


def fits(cfg: Config, plan: Plan) -> None:
    """InputError where memory does not suffice; what is only `short` passes."""
    if few := [process for process in plan.processes if process.short]:
        raise refusals.engine_short(few[0])
    for slot, needed in plan.used().items():
        if needed > plan.nodes[slot.node].usable:
            raise refusals.too_full(plan, slot)
    for at, node in enumerate(plan.nodes):
        if node.host and not plan.spares(at) and plan.host(at, cfg) > node.host:
            raise refusals.host_too_full(cfg, plan, at)


def short(cfg: Config, plan: Plan) -> list[str]:
    """A warning for a machine whose free memory is less than its processes on CPUs need; [] where it suffices."""
    found = [
        refusals.host_too_full(cfg, plan, at)
        for at, node in enumerate(plan.nodes)
        if node.host and plan.spares(at) and plan.host(at, cfg) > node.host
    ]
    return [f"{error.found}. The run may end for want of memory: {error.next_step}" for error in found]


def assign(wanted: Sequence[Unit], gpus: Sequence[int]) -> dict[str, tuple[Slot, ...]] | None:
    """A slot for every bundle on nodes with so many GPUs each; None when it cannot be done by either of two orders.

    Largest first, each on the first node with room. First with learners whole, which lays their ranks together; then
    with what must be on one node first, so that learners take what is left.
    """
    ordered = sorted(wanted, key=lambda unit: -unit.gpus)
    return _assign(ordered, gpus) or _assign(sorted(ordered, key=lambda unit: not unit.together), gpus)


def _assign(ordered: Sequence[Unit], gpus: Sequence[int]) -> dict[str, tuple[Slot, ...]] | None:
    free = [_Free([1.0] * count) for count in gpus]
    found: dict[str, tuple[Slot, ...]] = {}
    spread: list[Unit] = []
    for unit in ordered:
        for at, node in enumerate(free):
            if (chosen := node.fit(unit.bundles)) is not None:
                node.take(unit.bundles, chosen)
                found[unit.name] = tuple(Slot(at, gpu) for gpu in chosen)
                break
        else:
            if unit.together:
                return None
            spread.append(unit)
    for unit in spread:
        slots = _spread(unit, free)
        if slots is None:
            return None
        found[unit.name] = slots
    return found


def _spread(unit: Unit, free: Sequence[_Free]) -> tuple[Slot, ...] | None:
    """Over several nodes, those with most room first, so that few are touched."""
    order = sorted(range(len(free)), key=lambda at: (-sum(left >= 1 - SLACK for left in free[at].gpus), at))
    slots: list[Slot] = []
    rest = list(unit.bundles)
    for at in order:
        while rest and (chosen := free[at].fit(rest[:1])) is not None:
            free[at].take(rest[:1], chosen)
            slots.append(Slot(at, chosen[0]))
            rest = rest[1:]
    return None if rest else tuple(slots)
