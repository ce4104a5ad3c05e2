"""The run's figures as Ray metrics, so that the dashboard and Prometheus see them.

Owns one gauge a figure, tagged with role and run. Promises gauges only: a mean over Ray's histograms is wrong (their
sum is made from bucket midpoints). Refuses to know what a figure means.
"""

from __future__ import annotations

import re

from ray.util.metrics import Gauge


class RayMetrics:
    """`write` mirrors a row of metrics.jsonl into gauges named `ssp_<figure>`."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._gauges: dict[str, Gauge] = {}

    def write(self, step: int, role: str, values: dict[str, float]) -> None:
        """One row."""
        for key, value in {**values, "step": float(step)}.items():
            name = "ssp_" + re.sub(r"[^a-zA-Z0-9_]", "_", key)
            gauge = self._gauges.get(name)
            if gauge is None:
                gauge = self._gauges[name] = Gauge(name, description=key, tag_keys=("role", "run"))
            gauge.set(float(value), tags={"role": role, "run": self._run})
