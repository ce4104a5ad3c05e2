"""A placement plan on a Ray cluster: what nodes there are, and a placement group for each unit.

Owns the groups of one run. Promises that actors go to the GPUs that the plan says (a node that is gone is replaced by
another one with room), that what the cluster lacks is named within seconds where it never had it, and within
ray.start_timeout where others have taken it, and that the groups are gone when the run is. Refuses to plan
(`ssp.capacity.placement`). A plan without GPUs makes no group: actors ask Ray for CPUs only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from actors.process import TOLD
from ssp.base.errors import InputError
from ssp.capacity.placement import Plan, Seat, Unit, machine, make
from ssp.config.nodes import Node, parse
from ssp.config.schema import Config

Where = Callable[[str, int], dict[str, Any]]
"""(process, number) → the options of its actor that say where it goes; empty for one on CPUs."""

PROBE_SECONDS = 60.0


def planned(cfg: Config) -> Plan:
    """The plan of a run on the cluster that this process is connected to. InputError when it does not fit there."""
    return make(cfg, nodes(cfg))


def nodes(cfg: Config) -> list[Node]:
    """The living nodes, by name their Ray ids, those with most GPUs first; how much a GPU holds only where a run has GPUs.

    That is what `placement.nodes` says of nodes with so many GPUs, else what nvidia-smi says there. InputError when
    neither does.
    """
    place = cfg.placement
    asks = place.engine_gpus or place.learner_gpus or place.judge_gpus or cfg.retriever.gpus
    declared = {node.gpus: node.gpu for node in parse(place.nodes)} if place.nodes else {}
    found = []
    for node in ray.nodes():
        if node["Alive"]:
            found.append(Node(node["NodeID"], int(node["Resources"].get("GPU", 0))))
    found.sort(key=lambda node: (-node.gpus, node.name))
    if not asks:
        return found
    return [replace(node, gpu=declared.get(node.gpus) or _gpu_bytes(node)) if node.gpus else node for node in found]


def unused(nodes: Sequence[Mapping[str, Any]], homes: Collection[str]) -> str:
    """What a user is told where nodes of the cluster (as `ray.nodes` lists them) have none of a run's actors, which live on
    `homes`; "" where all have, but those that offer no CPU."""
    there = [node for node in nodes if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    idle = [str(node["NodeManagerAddress"]) for node in there if node["NodeID"] not in homes]
    if not idle:
        return ""
    return (
        f"nothing of this run is on {len(idle)} of {len(there)} nodes ({', '.join(sorted(idle))}): all its actors fit "
        "elsewhere. More of them use it: placement.solvers, placement.proposers, retriever.replicas"
    )


def _gpu_bytes(node: Node) -> int:
    """Of the smallest GPU of a node, as nvidia-smi says there."""
    probe: Any = _smi
    strategy = NodeAffinitySchedulingStrategy(node.name, soft=False)
    try:
        said = ray.get(probe.options(scheduling_strategy=strategy).remote(), timeout=PROBE_SECONDS)
    except (RayError, GetTimeoutError) as error:
        raise _unknown(node, f"{type(error).__name__}") from error
    if not said:
        raise _unknown(node, "no nvidia-smi")
    return int(min(said))


def _unknown(node: Node, found: str) -> InputError:
    rule = f"how much the {node.gpus} GPUs of Ray node {node.name[:8]} hold is known"
    return InputError(rule, found, f"say it: placement.nodes=1x{node.gpus}x80")


@ray.remote(num_cpus=0, max_retries=0)
def _smi() -> list[int]:
    """Bytes of each GPU of the node that this runs on."""
    return machine.gpu_bytes()


@dataclass(frozen=True)
class _Part:
    """The bundles of a unit that are on one node, as a placement group; `single`: one bundle for all of them."""

    group: PlacementGroup
    bundles: tuple[int, ...]
    single: bool


class Groups:
    """The placement groups of a run, named after it."""

    def __init__(self, plan: Plan, cfg: Config, run: str) -> None:
        """Make them and wait. InputError naming what is missing after ray.start_timeout seconds."""
        self._plan, self._cpus = plan, cfg.placement.cpus
        self._parts: dict[str, list[_Part]] = {}
        self._groups: list[tuple[str, PlacementGroup]] = []
        try:
            for unit, slots in plan.placed:
                self._parts[unit.name] = self._make(unit, [plan.nodes[slot.node].name for slot in slots], run)
            self._wait(cfg.ray.start_timeout)
        except BaseException:
            self.end()
            raise

    def where(self, process: str, index: int) -> dict[str, Any]:
        """Options of the actor number `index` of that kind of process; empty when it computes on CPUs."""
        for unit, _ in self._plan.placed:
            seats = [seat for seat in unit.seats if (seat.process, seat.index) == (process, index)]
            if seats:
                return self._options(unit, seats)
        return {}

    def end(self) -> None:
        """Remove the groups; actors that are still in them end."""
        for _, group in self._groups:
            remove_placement_group(group)
        self._groups.clear()

    def _make(self, unit: Unit, names: Sequence[str], run: str) -> list[_Part]:
        """One group for the bundles on each node. They go there if they can, so that one may come back elsewhere."""
        whole = [seat for seat in unit.seats if seat.rank == 0]
        alone = len(whole) == 1 and len(unit.bundles) > 1
        parts = []
        for name in dict.fromkeys(names):
            here = tuple(i for i, at in enumerate(names) if at == name)
            cpus = [self._cpus * sum(seat.bundle == i for seat in whole) for i in here]
            wanted = [(unit.bundles[i], cpu) for i, cpu in zip(here, cpus, strict=True)]
            if alone:  # one actor can only be in one bundle
                wanted = [(sum(gpu for gpu, _ in wanted), sum(cpus))]
            bundles = [{"GPU": gpu, **({"CPU": cpu} if cpu else {})} for gpu, cpu in wanted]
            label = f"{run}-{unit.name}"
            group = placement_group(bundles, strategy="STRICT_PACK", name=label, _soft_target_node_id=name)
            self._groups.append((label, group))
            parts.append(_Part(group, here, alone))
        return parts

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for label, group in self._groups:
            if not group.wait(max(deadline - time.monotonic(), 0.001)):
                free = ray.available_resources()
                found = (
                    f"{label} wants {_listed(group.bundle_specs)} on one node; free in the whole cluster: "
                    f"GPU {free.get('GPU', 0):g}, CPU {free.get('CPU', 0):g}"
                )
                rule = f"Ray gives every unit its resources within ray.start_timeout={seconds:g} s"
                raise InputError(rule, found, "end what holds them (ray list placement-groups), or add nodes")

    def _options(self, unit: Unit, seats: Sequence[Seat]) -> dict[str, Any]:
        first = seats[0]
        part = next(part for part in self._parts[unit.name] if first.bundle in part.bundles)
        place = 0 if part.single else part.bundles.index(first.bundle)
        strategy = PlacementGroupSchedulingStrategy(
            part.group, placement_group_bundle_index=place, placement_group_capture_child_tasks=True
        )
        found: dict[str, Any] = {"scheduling_strategy": strategy}
        if part.single or len(seats) == 1:
            return {**found, "num_gpus": sum(seat.gpus for seat in seats)}
        # Ray gives one actor no parts of several GPUs: the bundles hold these for the run, and the actor is told which.
        ids = [_gpu_id(part.group, part.bundles.index(seat.bundle)) for seat in seats]
        told = {"CUDA_VISIBLE_DEVICES": ",".join(ids), "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", TOLD: "1"}
        return {**found, "num_gpus": 0, "runtime_env": {"env_vars": told}}


def _gpu_id(group: PlacementGroup, bundle: int) -> str:
    """The GPU of a bundle that holds one."""
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
    ask: Any = _which
    return str(ray.get(ask.options(scheduling_strategy=strategy).remote(), timeout=PROBE_SECONDS))


@ray.remote(num_cpus=0, num_gpus=0.001, max_retries=0)
def _which() -> str:
    """The GPU that this task was given."""
    return str(ray.get_gpu_ids()[0])


def _listed(bundles: Sequence[dict[str, float]]) -> str:
    return ", ".join(" and ".join(f"{name} {count:g}" for name, count in bundle.items()) for bundle in bundles)


def nowhere(process: str, index: int) -> dict[str, Any]:
    """`Where` of a run on CPUs."""
    return {}
