"""The run's figures as Ray metrics, so that the dashboard and Prometheus see them.

Owns the series: `ssp_...`, named and tagged as `ssp.telemetry.figures` says, rows of metrics.jsonl as they are written and
live figures every few seconds. Promises gauges and counters only: a mean over Ray's histograms is wrong (their sum is made
from bucket midpoints); and that an actor which does not answer costs a run nothing but a missing value. Refuses to know
what a figure means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.metrics import Counter, Gauge

from actors.crew import RayCrew
from ssp.telemetry.activity import Activity
from ssp.telemetry.figures import COUNTER, find
from ssp.telemetry.queuelog import QueueLog

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

    def write(self, step: int, role: str, values: dict[str, float]) -> None:
        """One row of metrics.jsonl."""
        for name, value in {**values, "step": float(step)}.items():
            self.add(name, role, value)

    def add(self, name: str, role: str, value: float, shown: str = "") -> None:
        """One value of a listed figure; of a counter, what is added. `shown`: the role tag, where it is not `role`."""
        figure, parts = find(name, role)
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


async def watch(metrics: RayMetrics, activity: Activity, crews: Sequence[RayCrew[Any]], queues: QueueLog) -> None:
    """Until cancelled, tell what the actors do, how full the queues are, and how busy the retriever is. `crews`: of the
    queues and the retriever; `queues` keeps what the former hold."""
    while True:
        queues.write(await look(metrics, activity, crews))
        await asyncio.sleep(EVERY)


async def look(metrics: RayMetrics, activity: Activity, crews: Sequence[RayCrew[Any]]) -> dict[str, dict[str, float]]:
    """Tell once. What each queue that answered says of itself."""
    busy, queues = activity.busy(), dict[str, dict[str, float]]()
    for kind, names in activity.kinds().items():
        metrics.add("actor/count", "live", float(len(names)), kind)
        if (version := activity.version(kind)) >= 0:
            metrics.add("actor/version", "live", float(version), kind)
        for name in names:
            metrics.grown("actor/busy_seconds", kind, name, busy[name])
    for crew in crews:
        queue = crew.name.removeprefix("queue-")
        method = "state" if crew.name == queue else "figures"
        members = list(crew.members)
        found = await asyncio.gather(*[_asked(member.handle, method) for member in members])
        if method == "figures":
            queues |= {queue: found[0]} if found[0] else {}
            for name, value in queues.get(queue, {}).items():
                metrics.add(f"queue/{name}", "live", value, queue)
            continue
        metrics.add("retriever/under_way", "live", sum(told["under_way"] for told in found if told), crew.name)
        for member, told in zip(members, found, strict=True):
            if told:
                metrics.grown("retriever/queries", crew.name, member.name, told["items"])
                metrics.grown("retriever/busy_seconds", crew.name, member.name, told["seconds"])
    return queues


async def _asked(handle: Any, method: str) -> dict[str, float] | None:
    """What an actor says of itself; None of one that is down, hangs or does not come to it in time."""
    try:
        async with asyncio.timeout(PATIENCE):  # not wait_for: see actors/crew.py
            told: dict[str, float] = await getattr(handle, method).remote()
        return told
    except (RayError, TimeoutError):
        return None


def endpoint() -> str:
    """Where Prometheus finds the metrics of this node."""
    here = ray.get_runtime_context().get_node_id()
    node = next(node for node in ray.nodes() if node["NodeID"] == here)
    return f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
