"""What is placed as a whole (a unit: an engine, the ranks of a learner, a judge, a retriever
shard), and on which GPUs.

Layouts. separate: engines and learners have GPUs of their own. colocate: the ranks of a role's
learner sit on the GPUs of that role's engines, and they take turns. shared-base: one set of engines
for both roles; the learners sit with them when their shares of a GPU leave room, else on GPUs of
their own.
Promises that no GPU is given out twice, that every unit is placed once, and that the same
description gives the same plan."""

from collections import Counter
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
    layout, place, taught = cfg.placement.layout, cfg.placement, learners(cfg)
    shares = layout == COLOCATE or (layout == SHARED_BASE and place.engine_gpus < 1)
    made: dict[str, list[Unit]] = {}
    for process in sorted((p for p in processes if p.gpus), key=lambda p: p.name in taught):
        name, gpus, count = process.name, process.gpus, process.count
        hosts = [FLEET] if layout == SHARED_BASE else list(taught.get(name, ()))
        if name not in taught:  # each on GPUs of its own, or on a share of one
            spread = range(process.spread)
            seats_of = [
                tuple(PlannedSeat(name, index, rank, rank, gpus) for rank in spread)
                for index in range(count)
            ]
            made[name] = [
                Unit(f"{name}-{at}", (gpus,) * process.spread, seats)
                for at, seats in enumerate(seats_of)
            ]
        elif shares and all(host in made for host in hosts):
            _sit(process, hosts, made)
        else:  # all ranks together, a bundle each
            seats = tuple(PlannedSeat(name, rank, 0, rank, gpus) for rank in range(count))
            made[name] = [Unit(name, (gpus,) * count, seats, together=False)]
    return [unit for some in made.values() for unit in some]


def _sit(learner: Process, hosts: Sequence[str], made: dict[str, list[Unit]]) -> None:
    """Put each rank on a GPU of its own among those of the hosts' engines; these are whole GPUs
    from now on."""
    for host in hosts:
        made[host] = [
            replace(unit, bundles=(1.0,) * len(unit.bundles), turns=True) for unit in made[host]
        ]
    places = [
        (host, i, bundle)
        for host in hosts
        for i, unit in enumerate(made[host])
        for bundle in range(len(unit.bundles))
    ]
    rule = f"the ranks of {learner.name} share the GPUs of {' and '.join(hosts)}, one each"
    step = (
        f"set {learner.name.removeprefix('learner-')}.learner.ranks={len(places)}, or more engines"
    )
    hold(learner.count <= len(places), rule, f"{learner.count} ranks, {len(places)} GPUs", step)
    for rank, (host, i, bundle) in enumerate(places[: learner.count]):
        seat, unit = PlannedSeat(learner.name, rank, 0, bundle, learner.gpus), made[host][i]
        made[host][i] = replace(unit, seats=(*unit.seats, seat))


def needs_of(unit: Unit, known: Mapping[str, Process], bundle: int) -> int:
    """Bytes on the GPU of one bundle of the unit."""
    there = [known[seat.process] for seat in unit.seats if seat.bundle == bundle]
    turns = [process.device(turn=True) for process in there]
    return sum(process.device(turn=False) for process in there) + (
        max(turns) if unit.turns else sum(turns)
    )


@dataclass(frozen=True)
class GpuSlot:
    """One bundle's place: node and GPU by number."""

    node: int
    gpu: int


@dataclass(frozen=True)
class Plan:
    """The units with a slot for each bundle, on `nodes`, for `processes`. What has no unit computes
    on CPUs, anywhere."""

    nodes: list[Node]
    processes: list[Process]
    placed: list[tuple[Unit, tuple[GpuSlot, ...]]]

    @property
    def known(self) -> dict[str, Process]:
        """Processes by name."""
        return {process.name: process for process in self.processes}

    def tenants(self) -> dict[GpuSlot, list[tuple[Unit, int]]]:
        """GPU → the (unit, bundle) that are on it."""
        found: dict[GpuSlot, list[tuple[Unit, int]]] = {}
        for unit, slots in self.placed:
            for bundle, slot in enumerate(slots):
                found.setdefault(slot, []).append((unit, bundle))
        return dict(sorted(found.items(), key=lambda item: (item[0].node, item[0].gpu)))

    def used(self) -> dict[GpuSlot, int]:
        """GPU → bytes that are needed on it."""
        known, tenants = self.known, self.tenants()
        return {
            slot: sum(needs_of(unit, known, at) for unit, at in there)
            for slot, there in tenants.items()
        }

    def seated(self, node: int) -> dict[str, int]:
        """Processes on GPUs of that node: name → how many have their first GPU there."""
        seats = (
            (seat, slots) for unit, slots in self.placed for seat in unit.seats if seat.rank == 0
        )
        return dict(
            Counter(seat.process for seat, slots in seats if slots[seat.bundle].node == node)
        )

    def host(self, node: int, cfg: Config) -> int:
        """Bytes in the memory of that node: its processes, Ray, the object store; on the first one
        the coordinator too, and what computes on CPUs, wherever Ray puts that."""
        seated = self.seated(node)
        counts = {
            p.name: seated.get(p.name, 0 if p.gpus or node else p.count) for p in self.processes
        }
        own = sum(count * self.known[name].on_host for name, count in counts.items())
        return own + sum(beside(cfg, first=node == 0).values())


def beside(cfg: Config, first: bool = True) -> dict[str, int]:
    """Bytes on a node beside the actors: Ray, its store; on the `first` also the coordinator."""
    found = {"Ray itself": BASE_MB["ray"] * MB, "object store, at most": object_store(cfg)}
    if first:
        if cfg.ray.dashboard >= 0:
            found["Ray's dashboard"] = BASE_MB["dashboard"] * MB
        found["coordinator (the process of ssp train)"] = BASE_MB["driver"] * MB
    return found


def lay(cfg: Config, nodes: Sequence[Node]) -> Plan:
    """The plan of a run of `cfg` on `nodes`, whether or not their memory suffices. InputError when
    GPUs do not."""
    for role in cfg.roles:
        wants, rule = (
            cfg.block(role).engine.device == "cuda",
            f"{role}.engine.device=cuda needs GPUs in a run",
        )
        shares = (
            f"placement.engine_gpus={cfg.placement.engine_gpus:g}"
            f" learner_gpus={cfg.placement.learner_gpus:g}"
        )
        hold(
            not wants or min(gpus(cfg, role)) > 0,
            rule,
            shares,
            "set both as docs/placement.md says, or device=auto",
        )
    found = processes(cfg, smallest_gpu(nodes))
    wanted = units(cfg, found)
    slots = assign(wanted, [node.gpus for node in nodes])
    if slots is None:  # not enough GPUs, or not enough on one node
        asked, there = sum(unit.gpus for unit in wanted), sum(node.gpus for node in nodes)
        most, listed = (
            max((node.gpus for node in nodes), default=0),
            ", ".join(f"{u.name} {u.gpus:g}" for u in wanted),
        )
        told = (
            f"{there} GPUs on {len(nodes)} nodes, {asked:g} are asked for ({listed}); the largest"
            f" node has {most}"
        )
        step = (
            "lower placement.proposers, placement.solvers, learner.ranks or tensor_parallel, or use"
            " larger nodes"
        )
        raise InputError("every unit of the run has its GPUs", told, step)
    return Plan(list(nodes), found, [(unit, slots[unit.name]) for unit in wanted])


def assign(wanted: Sequence[Unit], gpus: Sequence[int]) -> dict[str, tuple[GpuSlot, ...]] | None:
    """A slot for every bundle on nodes with so many GPUs each, largest unit first, each on the
    first node with room; where that fails, what must be on one node comes first, and learners take
    what is left. None when that fails too."""
    ordered = sorted(wanted, key=lambda unit: -unit.gpus)
    return _assign(ordered, gpus) or _assign(
        sorted(ordered, key=lambda unit: not unit.together), gpus
    )


def _assign(ordered: Sequence[Unit], gpus: Sequence[int]) -> dict[str, tuple[GpuSlot, ...]] | None:
    free = [[1.0] * count for count in gpus]
    found: dict[str, tuple[GpuSlot, ...]] = {}
    spread: list[Unit] = []
    for unit in ordered:
        for at, node in enumerate(free):
            if chosen := _take(node, unit.bundles):
                found[unit.name] = tuple(GpuSlot(at, gpu) for gpu in chosen)
                break
        else:
            if unit.together:
                return None
            spread.append(unit)
    for unit in spread:  # over several nodes, those with most room first, so that few are touched
        order = sorted(
            range(len(free)), key=lambda at: (-sum(left >= 1 - SLACK for left in free[at]), at)
        )
        slots: list[GpuSlot] = []
        for at in order:
            while len(slots) < len(unit.bundles) and (
                chosen := _take(free[at], [unit.bundles[len(slots)]])
            ):
                slots.append(GpuSlot(at, chosen[0]))
        if len(slots) < len(unit.bundles):
            return None
        found[unit.name] = tuple(slots)
    return found


def _take(free: list[float], wanted: Sequence[float]) -> list[int]:
    """Give out a GPU of a node for each bundle, the fullest that has room; [] and nothing given
    unless all fit."""
    left, chosen = list(free), []
    for share in wanted:
        room = [i for i, part in enumerate(left) if part >= share - SLACK]
        if not room:
            return []
        best = min(room, key=lambda i: left[i])
        left[best] -= share
        chosen.append(best)
    free[:] = left
    return chosen
