"""The run's figures as Ray metrics: series `ssp_...`, with the names and tags of
`ssp.telemetry.figures`.

Gauges and counters only: Ray makes the sum of a histogram from the midpoints of its buckets, so
that a mean over it is wrong."""

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.metrics import Counter, Gauge

from actors.program import Program
from ssp.base.values import Values
from ssp.selfplay.rollout_queue import RolloutQueue
from ssp.telemetry.activity import Activity
from ssp.telemetry.figures import COUNTER, find

EVERY = 5.0
"""Seconds between two looks at live figures; Ray exports with a delay of the same size."""

PATIENCE = 2.0
"""Seconds that an actor has to tell its state."""


class RayMetrics:
    """The series of one run."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._made: dict[str, Gauge | Counter] = {}
        self._seen: dict[tuple[str, str], float] = {}
        # rows come on a thread of their own, live figures on that of the loop
        self._lock = threading.Lock()

    def write(self, step: int, role: str, values: Values) -> None:
        """Set one row of metrics.jsonl."""
        for name, value in {**values, "step": float(step)}.items():
            self.add(name, role, value)

    def add(self, name: str, role: str, value: float, shown: str = "") -> None:
        """Set a listed figure to `value`, or add it to a counter. `shown`: the role tag, where it
        is not `role`."""
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
        """Raise a live counter to the `total` that `source` tells. A source that began anew counts
        from 0."""
        before = self._seen.get((name, source), 0.0)
        if total < before:
            before = 0.0
        self.add(name, "live", total - before, shown)
        self._seen[name, source] = total


async def watch(
    metrics: RayMetrics, activity: Activity, program: Program, queues: Mapping[str, RolloutQueue]
) -> None:
    """Until cancelled, export what the actors do, how full the queues are and how busy the
    retriever is."""
    while True:
        await look(metrics, activity, program, queues)
        await asyncio.sleep(EVERY)


async def look(
    metrics: RayMetrics, activity: Activity, program: Program, queues: Mapping[str, RolloutQueue]
) -> None:
    """Export these figures once."""
    busy = activity.busy()
    for kind, names in activity.kinds().items():
        metrics.add("actor/count", "live", float(len(names)), kind)
        version = activity.version(kind)
        if version >= 0:
            metrics.add("actor/version", "live", float(version), kind)
        for name in names:
            metrics.grown("actor/busy_seconds", kind, name, busy[name])
    for role, queue in queues.items():
        for figure, value in queue.figures().items():
            metrics.add(f"queue/{figure}", "live", value, role)
    for crew in program.retriever:
        states = await asyncio.gather(*[_state(handle) for handle in crew.handles])
        under_way = 0.0
        for i, state in enumerate(states):
            if state:
                actor = f"{crew.name}-{i}"
                under_way += state["under_way"]
                metrics.grown("retriever/queries", crew.name, actor, state["items"])
                metrics.grown("retriever/busy_seconds", crew.name, actor, state["seconds"])
        metrics.add("retriever/under_way", "live", under_way, crew.name)


async def _state(handle: Any) -> Values:
    """What a retriever actor says of itself; nothing where it is down, hangs or is too busy."""
    with suppress(RayError, TimeoutError):
        async with asyncio.timeout(PATIENCE):  # not wait_for: see actors/crew.py
            state: Values = await handle.state.remote()
            return state
    return {}


def endpoint() -> str:
    """The URL at which Prometheus reads the metrics of this node."""
    here = ray.get_runtime_context().get_node_id()
    node = next(node for node in ray.nodes() if node["NodeID"] == here)
    return f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
