"""Where the time of a round goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ssp.base.episode import COVERAGE, STAGE

KINDS = ("generate", "search", "verify", "judge", "learn")

Span = Callable[[str, str, float, float], None]
"""(track, name, start, end) in perf_counter seconds."""


class Clock:
    """Seconds of one round; `generated`: on engines, by crew. `span` receives every stage for the timeline, on `track`."""

    def __init__(self, span: Span = lambda track, name, start, end: None, track: str = "round-0") -> None:
        self.track = track
        self.seconds: dict[str, float] = dict.fromkeys(KINDS, 0.0)
        self.searches: dict[str, float] = {}
        self.generated: dict[str, float] = {}
        self.coverage: float | None = None
        self.busy = 0.0
        self._span = span

    def stage(self, crew: str, name: str, started: float, workers: Sequence[dict[str, float]]) -> None:
        """One stage of a crew: `workers` are the seconds each worker reports, by kind, with `busy` for all of it."""
        self._span(self.track, f"{crew} {name}", started, time.perf_counter())
        if not workers:
            return
        slowest = max(workers, key=lambda seconds: seconds.get("busy", 0.0))
        for kind in KINDS:
            self.seconds[kind] += slowest.get(kind, 0.0)
        self.generated[crew] = self.generated.get(crew, 0.0) + slowest.get("generate", 0.0)
        for key in slowest:
            if key.startswith(STAGE) and key != COVERAGE:
                name = f"time/search_{key.removeprefix(STAGE)}"
                self.searches[name] = self.searches.get(name, 0.0) + slowest[key]
        told = [seconds[COVERAGE] for seconds in workers if COVERAGE in seconds]
        if told:
            self.coverage = min(told if self.coverage is None else [*told, self.coverage])
        self.busy += sum(seconds.get("busy", 0.0) for seconds in workers)

    def shares(self, wall: float, workers: int, learn: float = 0.0) -> dict[str, float]:
        """`time/...` in seconds for a step of `wall` seconds; `learn` is the slower learner's. `search/coverage`: the least.

        `time/search_<stage>` are parts of `time/search`, where the search tells them.
        `overhead` is wall time on the critical path that is neither engine, search, verification, judging nor learning;
        `idle` is the mean idle time of a worker.
        """
        seconds = {f"time/{kind}": self.seconds[kind] for kind in KINDS}
        seconds["time/learn"] += learn
        seconds["time/overhead"] = max(0.0, wall - sum(seconds.values()))
        seconds["time/idle"] = max(0.0, wall - self.busy / max(1, workers))
        seconds["time/step"] = wall
        return seconds | self.searches | ({} if self.coverage is None else {COVERAGE: self.coverage})
