"""What is placed as a whole (a unit: an engine, the ranks of a learner, a judge, a retriever
shard), and on which GPUs.

Layouts. separate: engines and learners have GPUs of their own. colocate: the ranks of a role's
learner sit on the GPUs of that role's engines, and they take turns. shared-base: one set of engines
for both roles; the learners sit with them when their shares of a GPU leave room, else on GPUs of
their own.
Promises that no GPU is given out twice, that every unit is placed once, and that the same
description gives the same plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ssp.base.errors import InputError, hold
from ssp.capacity.memory import MB, Process, learners, processes
from ssp.capacity.memory.processes import BASE_MB, FLEET, object_store
from ssp.config.crews import gpus
from ssp.config.nodes import Node, smallest_gpu
from ssp.config.schema import Config

SLACK = 1e-6
COLOCATE, SHARED_BASE = "colocate", "shared-base"


@dataclass(frozen=True)
class PlannedSeat:
    """Where one GPU of a process goes: process and its number, its `rank`-th GPU, a bundle of the
    unit, a share of that."""

    process: str
    index: int
    rank: int
    bundle: int
    gpus: float


@dataclass(frozen=True)
class Unit:
    """GPUs that are reserved together: `bundles` says how much of a GPU each is. `together`: on one
    node without fail. `turns`: those who sit on one of its GPUs take turns, so that the largest
    need counts, not the sum."""

    name: str
    bundles: tuple[float, ...]
    seats: tuple[PlannedSeat, ...]
    together: bool = True
    turns: bool = False

    @property
    def gpus(self) -> float:
        """GPUs in all."""
        return sum(self.bundles)


def units(cfg: Config, processes: Sequence[Process]) -> list[Unit]:
    """Every unit that needs GPUs, in order. InputError where a learner has more ranks than there
    are GPUs to share."""
    place = cfg.placement
    taught = learners(cfg)
    shares = place.layout == COLOCATE or (place.layout == SHARED_BASE and place.engine_gpus < 1)
    made: dict[str, list[Unit]] = {}
    for process in sorted(processes, key=lambda process: process.name in taught):
        name, gpus = process.name, process.gpus
        hosts = [FLEET] if place.layout == SHARED_BASE else list(taught.get(name, ()))
        if not gpus:
            continue
        if name not in taught:  # each on GPUs of its own, or on a share of one
            made[name] = []
            for index in range(process.count):
                seats = [
                    PlannedSeat(name, index, rank, rank, gpus) for rank in range(process.spread)
                ]
                bundles = (gpus,) * process.spread
                made[name].append(Unit(f"{name}-{index}", bundles, tuple(seats)))
        elif shares and all(host in made for host in hosts):
            _sit(process, hosts, made)
        else:  # all ranks together, a bundle each
            seats = [PlannedSeat(name, rank, 0, rank, gpus) for rank in range(process.count)]
            made[name] = [Unit(name, (gpus,) * process.count, tuple(seats), together=False)]
    return [unit for some in made.values() for unit in some]


def _sit(learner: Process, hosts: Sequence[str], made: dict[str, list[Unit]]) -> None:
    """Put each rank on a GPU of its own among those of the hosts' engines; these are whole GPUs
    from now on."""
    places: list[tuple[str, int, int]] = []
    for host in hosts:
        for at, unit in enumerate(made[host]):
            bundles = len(unit.bundles)
            made[host][at] = replace(unit, bundles=(1.0,) * bundles, turns=True)
            places += [(host, at, bundle) for bundle in range(bundles)]

    rule = f"the ranks of {learner.name} share the GPUs of {' and '.join(hosts)}, one each"
    role = learner.name.removeprefix("learner-")
    step = f"set {role}.learner.ranks={len(places)}, or more engines"
    hold(learner.count <= len(places), rule, f"{learner.count} ranks, {len(places)} GPUs", step)

    for rank, (host, at, bundle) in enumerate(places[: learner.count]):
        seat = PlannedSeat(learner.name, rank, 0, bundle, learner.gpus)
        unit = made[host][at]
        made[host][at] = replace(unit, seats=(*unit.seats, seat))


def needs_of(unit: Unit, known: Mapping[str, Process], bundle: int) -> int:
    """Bytes on the GPU of one bundle of the unit."""
    there = [known[seat.process] for seat in unit.seats if seat.bundle == bundle]
    always = sum(process.device(turn=False) for process in there)
    turns = [process.device(turn=True) for process in there]
    return always + (max(turns) if unit.turns else sum(turns))


@dataclass(frozen=True, order=True)
class GpuSlot:
    """One bundle's place: node and GPU by number."""

    node: int
    gpu: int


Slots = tuple[GpuSlot, ...]
"""The places of a unit's bundles, in order."""


@dataclass(frozen=True)
class Plan:
    """The units with a slot for each bundle, on `nodes`, for `processes`. What has no unit computes
    on CPUs, anywhere."""

    nodes: list[Node]
    processes: list[Process]
    placed: list[tuple[Unit, Slots]]

    @property
    def known(self) -> dict[str, Process]:
        """Processes by name."""
        return {process.name: process for process in self.processes}

    def tenants(self) -> dict[GpuSlot, list[tuple[Unit, int]]]:
        """GPU → the (unit, bundle) that are on it."""
        tenants: dict[GpuSlot, list[tuple[Unit, int]]] = {}
        for unit, slots in self.placed:
            for bundle, slot in enumerate(slots):
                tenants.setdefault(slot, []).append((unit, bundle))
        return dict(sorted(tenants.items()))

    def used(self) -> dict[GpuSlot, int]:
        """GPU → bytes that are needed on it."""
        known = self.known
        used = {}
        for slot, there in self.tenants().items():
            used[slot] = sum(needs_of(unit, known, bundle) for unit, bundle in there)
        return used

    def seated(self, node: int) -> dict[str, int]:
        """Processes on GPUs of that node: name → how many have their first GPU there."""
        counts: dict[str, int] = {}
        for unit, slots in self.placed:
            for seat in unit.seats:
                if seat.rank == 0 and slots[seat.bundle].node == node:
                    counts[seat.process] = counts.get(seat.process, 0) + 1
        return counts

    def host(self, node: int, cfg: Config) -> int:
        """Bytes in the memory of that node: its processes, Ray, the object store; on the first one
        the coordinator too, and what computes on CPUs, wherever Ray puts that."""
        seated = self.seated(node)
        total = sum(beside(cfg, first=node == 0).values())
        for process in self.processes:
            anywhere = 0 if process.gpus or node else process.count
            total += seated.get(process.name, anywhere) * process.on_host
        return total


def beside(cfg: Config, first: bool = True) -> dict[str, int]:
    """Bytes on a node beside the actors: Ray, its store; on the `first` also the coordinator."""
    needs = {"Ray itself": BASE_MB["ray"] * MB, "object store, at most": object_store(cfg)}
    if first:
        if cfg.ray.dashboard >= 0:
            needs["Ray's dashboard"] = BASE_MB["dashboard"] * MB
        needs["coordinator (the process of ssp train)"] = BASE_MB["driver"] * MB
    return needs


def lay(cfg: Config, nodes: Sequence[Node]) -> Plan:
    """The plan of a run of `cfg` on `nodes`, whether or not their memory suffices. InputError when
    GPUs do not."""
    place = cfg.placement
    shares = f"placement.engine_gpus={place.engine_gpus:g} learner_gpus={place.learner_gpus:g}"
    step = "set both as docs/placement.md says, or device=auto"
    for role in cfg.roles:
        engine = cfg.block(role).engine
        wanted = engine.device == "cuda"
        engines, learners = gpus(cfg, role)
        least = min(engines, learners) if engine.traits.model == "needed" else learners
        rule = f"{role}.engine.device=cuda needs GPUs in a run"
        hold(not wanted or least > 0, rule, shares, step)

    listed = processes(cfg, smallest_gpu(nodes))
    placed = units(cfg, listed)
    slots = assign(placed, [node.gpus for node in nodes])
    if slots is None:
        there = sum(node.gpus for node in nodes)
        largest = max((node.gpus for node in nodes), default=0)
        asked = sum(unit.gpus for unit in placed)
        each = ", ".join(f"{unit.name} {unit.gpus:g}" for unit in placed)
        raise InputError(
            "every unit of the run has its GPUs",
            f"{there} GPUs on {len(nodes)} nodes, {asked:g} are asked for ({each}); the largest"
            f" node has {largest}",
            "lower placement.proposers, placement.solvers, learner.ranks or tensor_parallel, or use"
            " larger nodes; a plan takes the nodes that placement.nodes describes",
        )
    return Plan(list(nodes), listed, [(unit, slots[unit.name]) for unit in placed])


def assign(wanted: Sequence[Unit], gpus: Sequence[int]) -> dict[str, Slots] | None:
    """A slot for every bundle on nodes with so many GPUs each, largest unit first, each on the
    first node with room; where that fails, what must be on one node comes first, and learners take
    what is left. None when that fails too."""
    largest_first = sorted(wanted, key=lambda unit: -unit.gpus)
    bound_first = sorted(largest_first, key=lambda unit: not unit.together)
    return _assign(largest_first, gpus) or _assign(bound_first, gpus)


def _assign(ordered: Sequence[Unit], gpus: Sequence[int]) -> dict[str, Slots] | None:
    """The slots of each unit, given out in this order; None when one has no room."""
    free = [[1.0] * count for count in gpus]
    slots = {}
    spread = []
    for unit in ordered:
        for node, left in enumerate(free):
            chosen = _take(left, unit.bundles)
            if chosen:
                slots[unit.name] = tuple(GpuSlot(node, gpu) for gpu in chosen)
                break
        else:
            if unit.together:
                return None
            spread.append(unit)
    for unit in spread:
        slots[unit.name] = _on_several(unit, free)
        if not slots[unit.name]:
            return None
    return slots


def _on_several(unit: Unit, free: list[list[float]]) -> Slots:
    """GPUs of several nodes, those with most room first, so that few are touched; () when they do
    not suffice."""
    whole = [sum(left >= 1 - SLACK for left in node) for node in free]
    slots: list[GpuSlot] = []
    for node in sorted(range(len(free)), key=lambda node: -whole[node]):
        for share in unit.bundles[len(slots) :]:
            chosen = _take(free[node], [share])
            if not chosen:
                break
            slots.append(GpuSlot(node, chosen[0]))
    return tuple(slots) if len(slots) == len(unit.bundles) else ()


def _take(free: list[float], wanted: Sequence[float]) -> list[int]:
    """Give out a GPU of a node for each bundle, the fullest that has room; [] and nothing given
    unless all fit."""
    left = list(free)
    chosen = []
    for share in wanted:
        fitting = [gpu for gpu, part in enumerate(left) if part >= share - SLACK]
        if not fitting:
            return []
        fullest = min(fitting, key=lambda gpu: left[gpu])
        left[fullest] -= share
        chosen.append(fullest)
    free[:] = left
    return chosen
