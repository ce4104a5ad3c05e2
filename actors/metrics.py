"""The run's figures as Ray metrics: series `ssp_...`, named and tagged as `ssp.telemetry.figures`
says.

Gauges and counters only: a mean over Ray's histograms is wrong (their sum is made from bucket
midpoints)."""

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.metrics import Counter, Gauge

from actors.program import Program
from ssp.selfplay.rollout_queue import RolloutQueue
from ssp.telemetry.activity import Activity
from ssp.telemetry.figures import COUNTER, find

EVERY = 5.0
"""Seconds between two looks at what is live; Ray exports with a delay of the same size."""

PATIENCE = 2.0
"""Seconds that an actor has to say how it is."""


class RayMetrics:
    """The series of one run."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._made: dict[str, Gauge | Counter] = {}
        self._seen: dict[tuple[str, str], float] = {}
        # rows come on a thread of their own, what is live from the loop's
        self._lock = threading.Lock()

    def write(self, step: int, role: str, values: dict[str, float]) -> None:
        """One row of metrics.jsonl."""
        for name, value in {**values, "step": float(step)}.items():
            self.add(name, role, value)

    def add(self, name: str, role: str, value: float, shown: str = "") -> None:
        """One value of a listed figure; of a counter, what is added. `shown`: the role tag, where
        it is not `role`."""
        figure, parts = find(name, role)
        with self._lock:
            metric = self._made.get(figure.series)
            if metric is None:
                made = Counter if figure.kind == COUNTER else Gauge
                metric = self._made[figure.series] = made(figure.series, figure.text, figure.tags)
        tags = {"role": shown or role, "run": self._run, **parts}
        if isinstance(metric, Gauge):
            metric.set(value, tags=tags)
        elif value > 0:  # Ray refuses to add nothing
            metric.inc(value, tags=tags)

    def grown(self, name: str, shown: str, source: str, total: float) -> None:
        """A live counter of which `source` tells its total; one that began anew counts from 0."""
        before = self._seen.get((name, source), 0.0)
        self.add(name, "live", total - before if total >= before else total, shown)
        self._seen[name, source] = total


async def watch(
    metrics: RayMetrics, activity: Activity, program: Program, queues: Mapping[str, RolloutQueue]
) -> None:
    """Until cancelled, tell what the actors do, how full the queues are and how busy the retriever
    is."""
    while True:
        await look(metrics, activity, program, queues)
        await asyncio.sleep(EVERY)


async def look(
    metrics: RayMetrics, activity: Activity, program: Program, queues: Mapping[str, RolloutQueue]
) -> None:
    """Tell once."""
    busy = activity.busy()
    for kind, names in activity.kinds().items():
        metrics.add("actor/count", "live", float(len(names)), kind)
        if (version := activity.version(kind)) >= 0:
            metrics.add("actor/version", "live", float(version), kind)
        for name in names:
            metrics.grown("actor/busy_seconds", kind, name, busy[name])
    for role, queue in queues.items():
        for figure, value in queue.figures().items():
            metrics.add(f"queue/{figure}", "live", value, role)
    for crew in program.retriever:
        states = await asyncio.gather(*[_asked(handle.state) for handle in crew.handles])
        there = {i: state for i, state in enumerate(states) if state}
        metrics.add(
            "retriever/under_way",
            "live",
            sum(state["under_way"] for state in there.values()),
            crew.name,
        )
        for i, state in there.items():
            metrics.grown("retriever/queries", crew.name, f"{crew.name}-{i}", state["items"])
            metrics.grown("retriever/busy_seconds", crew.name, f"{crew.name}-{i}", state["seconds"])


async def _asked(method: Any) -> dict[str, float] | None:
    """What an actor says of itself; None of one that is down, hangs or does not come to it in
    time."""
    with suppress(RayError, TimeoutError):
        async with asyncio.timeout(PATIENCE):  # not wait_for: see actors/crew.py
            return await method.remote()
    return None


def endpoint() -> str:
    """Where Prometheus finds the metrics of this node."""
    here = ray.get_runtime_context().get_node_id()
    node = next(node for node in ray.nodes() if node["NodeID"] == here)
    return f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
