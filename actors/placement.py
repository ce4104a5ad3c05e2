"""A placement plan (`ssp.capacity.placement`) on a Ray cluster: what nodes there are, and the
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
    """The living nodes, by name their Ray ids, those with most GPUs first; how much a GPU holds
    only where a run has GPUs. That is what `placement.nodes` says of nodes with so many GPUs, else
    what nvidia-smi says there. InputError when neither does."""
    place = cfg.placement
    declared = {node.gpus: node.gpu for node in parse(place.nodes)} if place.nodes else {}
    living = [node for node in ray.nodes() if node["Alive"]]
    found = [Node(node["NodeID"], int(node["Resources"].get("GPU", 0))) for node in living]
    found.sort(key=lambda node: (-node.gpus, node.name))
    if not (place.engine_gpus or place.learner_gpus or cfg.retriever.gpus):
        return found
    return [
        replace(node, gpu=declared.get(node.gpus) or _gpu_bytes(node)) if node.gpus else node
        for node in found
    ]


def _gpu_bytes(node: Node) -> int:
    """Of the smallest GPU of a node, as nvidia-smi says there."""
    strategy = NodeAffinitySchedulingStrategy(node.name, soft=False)
    probe: Any = ray.remote(machine.gpu_bytes).options(
        num_cpus=0, max_retries=0, scheduling_strategy=strategy
    )
    try:
        said, why = ray.get(probe.remote(), timeout=PROBE_SECONDS), "no nvidia-smi"
    except RayError as error:
        said, why = [], type(error).__name__
    rule = f"how much the {node.gpus} GPUs of Ray node {node.name[:8]} hold is known"
    hold(said, rule, why, f"say it: placement.nodes=1x{node.gpus}x80")
    return int(min(said))


@dataclass(frozen=True)
class _Part:
    """The bundles of a unit that are on one node, as a placement group; `single`: one bundle for
    all of them."""

    group: PlacementGroup
    bundles: tuple[int, ...]
    single: bool


class Groups:
    """The placement groups of a run, named after it."""

    def __init__(self, plan: Plan, cfg: Config, run: str) -> None:
        """Make them and wait; a plan without GPUs has none. InputError naming what is missing after
        placement.call_timeout seconds."""
        self._plan, self._cpus = plan, cfg.placement.cpus
        self._parts: dict[str, list[_Part]] = {}
        self._groups: list[tuple[str, PlacementGroup]] = []
        try:
            for unit, slots in plan.placed:
                self._parts[unit.name] = self._make(
                    unit, [plan.nodes[slot.node].name for slot in slots], run
                )
            self._wait(cfg.ray.start_timeout)
        except BaseException:
            self.end()
            raise

    def where(self, process: str, index: int) -> dict[str, Any]:
        """Options of the actor number `index` of that kind of process; empty when it computes on
        CPUs."""
        for unit, _ in self._plan.placed:
            if seats := [
                seat for seat in unit.seats if (seat.process, seat.index) == (process, index)
            ]:
                return self._options(unit, seats)
        return {}

    def end(self) -> None:
        """Remove the groups; actors that are still in them end."""
        for _, group in self._groups:
            remove_placement_group(group)
        self._groups.clear()

    def _make(self, unit: Unit, names: Sequence[str], run: str) -> list[_Part]:
        """One group for the bundles on each node. They go there if they can, so that one may come
        back elsewhere."""
        whole = [seat for seat in unit.seats if seat.rank == 0]
        alone = len(whole) == 1 and len(unit.bundles) > 1
        parts = []
        for name in dict.fromkeys(names):
            here = tuple(i for i, at in enumerate(names) if at == name)
            wanted = [
                (unit.bundles[i], self._cpus * sum(seat.bundle == i for seat in whole))
                for i in here
            ]
            if alone:  # one actor can only be in one bundle
                wanted = [(sum(gpu for gpu, _ in wanted), sum(cpu for _, cpu in wanted))]
            bundles = [{"GPU": gpu, **({"CPU": cpu} if cpu else {})} for gpu, cpu in wanted]
            label = f"{run}-{unit.name}"
            group = placement_group(
                bundles, strategy="STRICT_PACK", name=label, _soft_target_node_id=name
            )
            self._groups.append((label, group))
            parts.append(_Part(group, here, alone))
        return parts

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for label, group in self._groups:
            if not group.wait(max(deadline - time.monotonic(), 0.001)):
                free, bundles = ray.available_resources(), group.bundle_specs
                wanted = ", ".join(
                    " and ".join(f"{name} {n:g}" for name, n in bundle.items())
                    for bundle in bundles
                )
                left = f"GPU {free.get('GPU', 0):g}, CPU {free.get('CPU', 0):g}"
                rule = (
                    "Ray gives every unit its resources within"
                    f" placement.call_timeout={seconds:g} s"
                )
                found = f"{label} wants {wanted} on one node; free in the whole cluster: {left}"
                raise InputError(
                    rule, found, "end what holds them (ray list placement-groups), or add nodes"
                )

    def _options(self, unit: Unit, seats: Sequence[PlannedSeat]) -> dict[str, Any]:
        part = next(part for part in self._parts[unit.name] if seats[0].bundle in part.bundles)

        def strategy(seat: PlannedSeat, **more: Any) -> PlacementGroupSchedulingStrategy:
            place = 0 if part.single else part.bundles.index(seat.bundle)
            return PlacementGroupSchedulingStrategy(
                part.group, placement_group_bundle_index=place, **more
            )

        found: dict[str, Any] = {
            "scheduling_strategy": strategy(seats[0], placement_group_capture_child_tasks=True),
            "num_gpus": sum(seat.gpus for seat in seats),
        }
        if part.single or len(seats) == 1:
            return found
        # Ray gives one actor no parts of several GPUs: the bundles hold these for the run, and the
        # actor is told which.
        ask: Any = ray.remote(ray.get_gpu_ids)
        usual = {"num_cpus": 0, "num_gpus": 0.001, "max_retries": 0}
        asked = [
            ask.options(scheduling_strategy=strategy(seat), **usual).remote() for seat in seats
        ]
        ids = [str(gpus[0]) for gpus in ray.get(asked, timeout=PROBE_SECONDS)]
        told = {
            "CUDA_VISIBLE_DEVICES": ",".join(ids),
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            TOLD: "1",
        }
        return found | {"num_gpus": 0, "runtime_env": {"env_vars": told}}
