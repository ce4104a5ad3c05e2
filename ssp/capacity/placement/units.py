"""What is placed as a whole, as one placement group: an engine, the ranks of a learner, a judge, a retriever shard.

Layouts. separate: engines and learners have GPUs of their own. colocate: the ranks of a role's learner sit on the GPUs of
that role's engines, and they take turns. shared-base: one set of engines for both roles; the learners sit with them when
their shares of a GPU leave room, else on GPUs of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ssp.base.errors import InputError
from ssp.capacity.memory import Process, learners
from ssp.capacity.memory.processes import FLEET
from ssp.config.schema import Config

COLOCATE, SHARED_BASE = "colocate", "shared-base"


@dataclass(frozen=True)
class Seat:
    """Where one GPU of a process goes: number `index` of that kind of process, its `rank`-th GPU, a bundle of the unit, and
    the share of the bundle's GPU that it takes."""

    process: str
    index: int
    rank: int
    bundle: int
    gpus: float


@dataclass(frozen=True)
class Unit:
    """GPUs that are reserved together: `bundles` says how much of a GPU each is. `together`: on one node without fail.

    `turns`: those who sit on one of its GPUs take turns, so that the largest need counts, not the sum.
    """

    name: str
    bundles: tuple[float, ...]
    seats: tuple[Seat, ...]
    together: bool = True
    turns: bool = False

    @property
    def gpus(self) -> float:
        """GPUs in all."""
        return sum(self.bundles)


def units(cfg: Config, processes: Sequence[Process]) -> list[Unit]:
    """Every unit that needs GPUs, in the order of the processes; those that need none go anywhere. InputError where a
    learner has more ranks than there are GPUs to share."""
    layout, place, taught = cfg.placement.layout, cfg.placement, learners(cfg)
    shares = layout == COLOCATE or (layout == SHARED_BASE and place.engine_gpus < 1)
    made: dict[str, list[Unit]] = {}
    for process in sorted((p for p in processes if p.gpus), key=lambda p: p.name in taught):
        name, gpus, count = process.name, process.gpus, process.count
        hosts = [FLEET] if layout == SHARED_BASE else list(taught.get(name, ()))
        if name not in taught:  # each on GPUs of its own, or on a share of one
            spread = range(process.spread)
            seats_of = [tuple(Seat(name, index, rank, rank, gpus) for rank in spread) for index in range(count)]
            made[name] = [Unit(f"{name}-{at}", (gpus,) * process.spread, seats) for at, seats in enumerate(seats_of)]
        elif shares and all(host in made for host in hosts):
            _sit(process, hosts, made)
        else:  # all ranks together, a bundle each
            seats = tuple(Seat(name, rank, 0, rank, gpus) for rank in range(count))
            made[name] = [Unit(name, (gpus,) * count, seats, together=False)]
    return [unit for some in made.values() for unit in some]


def _sit(learner: Process, hosts: Sequence[str], made: dict[str, list[Unit]]) -> None:
    """Put each rank on a GPU of its own among those of the hosts' engines; these are whole GPUs from now on."""
    for host in hosts:
        made[host] = [replace(unit, bundles=(1.0,) * len(unit.bundles), turns=True) for unit in made[host]]
    places = [
        (host, i, bundle) for host in hosts for i, unit in enumerate(made[host]) for bundle in range(len(unit.bundles))
    ]
    if learner.count > len(places):
        raise InputError(
            f"the ranks of {learner.name} share the GPUs of {' and '.join(hosts)}, one each",
            f"{learner.count} ranks, {len(places)} GPUs",
            f"set {learner.name.removeprefix('learner-')}.learner.ranks={len(places)}, or more engines",
        )
    for rank, (host, i, bundle) in enumerate(places[: learner.count]):
        seat, unit = Seat(learner.name, rank, 0, bundle, learner.gpus), made[host][i]
        made[host][i] = replace(unit, seats=(*unit.seats, seat))


def needs_of(unit: Unit, known: Mapping[str, Process], bundle: int) -> int:
    """Bytes on the GPU of one bundle of the unit."""
    there = [known[seat.process] for seat in unit.seats if seat.bundle == bundle]
    turns = [process.device(turn=True) for process in there]
    return sum(process.device(turn=False) for process in there) + (max(turns) if unit.turns else sum(turns))
