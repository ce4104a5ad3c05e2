"""A placement plan (`ssp.capacity.placement`) on a Ray cluster: the nodes that are there, and the
placement groups of a run.

Actors go to the GPUs that the plan says (a node that is gone is replaced by another one with room);
what the cluster lacks is named. A plan without GPUs makes no group: actors ask Ray for CPUs
only."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from actors.process import TOLD
from ssp.base.errors import InputError, hold
from ssp.capacity.placement import Plan, PlannedSeat, Unit, machine, make
from ssp.config.nodes import Node, parse
from ssp.config.schema import Config

PROBE_SECONDS = 60.0


def planned(cfg: Config) -> Plan:
    """The plan of a run on the cluster that this process is connected to. InputError when it does
    not fit there."""
    return make(cfg, nodes(cfg))


def nodes(cfg: Config) -> list[Node]:
    """The living nodes, those with most GPUs first; their names are Ray's ids.

    How much a GPU holds is looked up only where a run has GPUs: `placement.nodes` says it for nodes
    with so many GPUs, else nvidia-smi does there. InputError when neither does."""
    place = cfg.placement
    living = []
    for node in ray.nodes():
        if node["Alive"]:
            living.append(Node(node["NodeID"], int(node["Resources"].get("GPU", 0))))
    living.sort(key=lambda node: (-node.gpus, node.name))
    if not (place.engine_gpus or place.learner_gpus or cfg.retriever.gpus):
        return living
    declared = {node.gpus: node.gpu for node in parse(place.nodes)} if place.nodes else {}
    for i, node in enumerate(living):
        if node.gpus:
            living[i] = replace(node, gpu=declared.get(node.gpus) or _gpu_bytes(node))
    return living


def _gpu_bytes(node: Node) -> int:
    """Bytes of the smallest GPU of a node, as nvidia-smi says there."""
    strategy = NodeAffinitySchedulingStrategy(node.name, soft=False)
    task: Any = ray.remote(machine.gpu_bytes)
    probe = task.options(num_cpus=0, max_retries=0, scheduling_strategy=strategy)
    try:
        sizes = ray.get(probe.remote(), timeout=PROBE_SECONDS)
        why = "no nvidia-smi"
    except RayError as error:
        sizes = []
        why = type(error).__name__
    rule = f"how much the {node.gpus} GPUs of Ray node {node.name[:8]} hold is known"
    hold(sizes, rule, why, f"say it: placement.nodes=1x{node.gpus}x80")
    return int(min(sizes))


@dataclass(frozen=True)
class _Part:
    """The placement group of those bundles of a unit that are on one node. `single`: one bundle
    holds them all."""

    group: PlacementGroup
    bundles: tuple[int, ...]
    single: bool


class Groups:
    """The placement groups of a run, named after it."""

    def __init__(self, plan: Plan, cfg: Config, run: str) -> None:
        """Make them and wait; a plan without GPUs has none. InputError naming what is missing after
        placement.call_timeout seconds."""
        self._plan = plan
        self._cpus = cfg.placement.cpus
        self._parts: dict[str, list[_Part]] = {}
        self._groups: list[tuple[str, PlacementGroup]] = []
        try:
            for unit, slots in plan.placed:
                homes = [plan.nodes[slot.node].name for slot in slots]
                self._parts[unit.name] = self._make(unit, homes, f"{run}-{unit.name}")
            self._wait(cfg.ray.start_timeout)
        except BaseException:
            self.end()
            raise

    def where(self, process: str, index: int) -> dict[str, Any]:
        """Ray's options of the actor number `index` of that kind of process; empty when it computes
        on CPUs."""
        for unit, _ in self._plan.placed:
            own = [seat for seat in unit.seats if (seat.process, seat.index) == (process, index)]
            if own:
                return self._options(unit, own)
        return {}

    def end(self) -> None:
        """Remove the groups; actors that are still in them end."""
        for _, group in self._groups:
            remove_placement_group(group)
        self._groups.clear()

    def _make(self, unit: Unit, homes: Sequence[str], label: str) -> list[_Part]:
        """Ask for one group for the bundles on each node; `homes`: the node of each bundle. They go
        there if they can, so that one may come back elsewhere."""
        actors = [seat for seat in unit.seats if seat.rank == 0]
        single = len(actors) == 1 and len(unit.bundles) > 1
        parts = []
        for home in dict.fromkeys(homes):
            here = tuple(i for i, node in enumerate(homes) if node == home)
            bundles = []
            for i in here:
                cpus = self._cpus * sum(seat.bundle == i for seat in actors)
                bundles.append({"GPU": unit.bundles[i], "CPU": cpus})
            if single:  # one actor can only be in one bundle
                bundles = [{name: sum(one[name] for one in bundles) for name in ("GPU", "CPU")}]
            for bundle in bundles:
                if not bundle["CPU"]:
                    del bundle["CPU"]
            group = placement_group(
                bundles, strategy="STRICT_PACK", name=label, _soft_target_node_id=home
            )
            self._groups.append((label, group))
            parts.append(_Part(group, here, single))
        return parts

    def _wait(self, seconds: float) -> None:
        """Wait until Ray has given all groups their resources. InputError after `seconds`."""
        deadline = time.monotonic() + seconds
        for label, group in self._groups:
            if group.wait(max(deadline - time.monotonic(), 0.001)):
                continue
            bundles = []
            for bundle in group.bundle_specs:
                bundles.append(" and ".join(f"{name} {n:g}" for name, n in bundle.items()))
            wants = f"{label} wants {', '.join(bundles)} on one node"
            free = ray.available_resources()
            left = f"GPU {free.get('GPU', 0):g}, CPU {free.get('CPU', 0):g}"
            limit = f"placement.call_timeout={seconds:g} s"
            raise InputError(
                f"Ray gives every unit its resources within {limit}",
                f"{wants}; free in the whole cluster: {left}",
                "end what holds them (ray list placement-groups), or add nodes",
            )

    def _options(self, unit: Unit, seats: Sequence[PlannedSeat]) -> dict[str, Any]:
        """Ray's options of the actor that has these seats of the unit."""
        part = next(part for part in self._parts[unit.name] if seats[0].bundle in part.bundles)

        def strategy(seat: PlannedSeat, **more: Any) -> PlacementGroupSchedulingStrategy:
            place = 0 if part.single else part.bundles.index(seat.bundle)
            return PlacementGroupSchedulingStrategy(
                part.group, placement_group_bundle_index=place, **more
            )

        first = strategy(seats[0], placement_group_capture_child_tasks=True)
        gpus = sum(seat.gpus for seat in seats)
        if part.single or len(seats) == 1:
            return {"scheduling_strategy": first, "num_gpus": gpus}
        # Ray gives one actor no parts of several GPUs: the bundles hold these for the run, and the
        # actor is told which.
        task: Any = ray.remote(ray.get_gpu_ids)
        asked = []
        for seat in seats:
            probe = task.options(
                num_cpus=0, num_gpus=0.001, max_retries=0, scheduling_strategy=strategy(seat)
            )
            asked.append(probe.remote())
        ids = [str(here[0]) for here in ray.get(asked, timeout=PROBE_SECONDS)]
        told = {
            "CUDA_VISIBLE_DEVICES": ",".join(ids),
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            TOLD: "1",
        }
        return {"scheduling_strategy": first, "num_gpus": 0, "runtime_env": {"env_vars": told}}
