"""What is placed as a whole: an engine, the ranks of a learner, a judge, a retriever shard.

Owns the map from settings to units. Promises that a unit is one placement group: a bundle each GPU, all on one node where
they must talk fast (an engine's ranks), preferably so elsewhere (a learner's). Refuses to choose nodes (`plan`).

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
    known = {process.name: process for process in processes}
    layout, place = cfg.placement.layout, cfg.placement
    made: dict[str, list[Unit]] = {}
    for process in processes:
        if process.gpus and process.name not in learners(cfg):
            made[process.name] = [_alone(process, i) for i in range(process.count)]
    shares = layout == COLOCATE or (layout == SHARED_BASE and place.engine_gpus < 1)
    for name, roles in learners(cfg).items():
        if not known[name].gpus:
            continue
        hosts = [FLEET] if layout == SHARED_BASE else list(roles)
        if shares and all(host in made for host in hosts):
            _sit(known[name], hosts, made)
        else:
            made[name] = [_group(known[name])]
    return [unit for some in made.values() for unit in some]


def _alone(process: Process, index: int) -> Unit:
    """One process on GPUs of its own, or on a share of one."""
    seats = [Seat(process.name, index, rank, rank, process.gpus) for rank in range(process.spread)]
    return Unit(f"{process.name}-{index}", (process.gpus,) * process.spread, tuple(seats))


def _group(process: Process) -> Unit:
    """All ranks of a learner, a bundle each."""
    seats = [Seat(process.name, rank, 0, rank, process.gpus) for rank in range(process.count)]
    return Unit(process.name, (process.gpus,) * process.count, tuple(seats), together=False)


def _sit(learner: Process, hosts: Sequence[str], made: dict[str, list[Unit]]) -> None:
    """Put each rank on a GPU of its own among those of the hosts' engines; these are whole GPUs from now on."""
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
        unit = made[host][i]
        seat = Seat(learner.name, rank, 0, bundle, learner.gpus)
        made[host][i] = replace(unit, seats=(*unit.seats, seat))
    for host in hosts:
        made[host] = [replace(unit, bundles=(1.0,) * len(unit.bundles), turns=True) for unit in made[host]]


def needs_of(unit: Unit, known: Mapping[str, Process], bundle: int) -> int:
    """Bytes on the GPU of one bundle of the unit."""
    there = [known[seat.process] for seat in unit.seats if seat.bundle == bundle]
    turns = [process.device(turn=True) for process in there]
    return sum(process.device(turn=False) for process in there) + (max(turns) if unit.turns else sum(turns))
