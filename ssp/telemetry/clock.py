"""Where the time of a round goes."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from ssp.base.episode import STAGE
from ssp.base.values import Seconds

KINDS = ("generate", "search", "verify", "judge", "learn")

Span = Callable[[str, str, float, float], None]
"""(track, name, start, end) in perf_counter seconds."""


class Clock:
    """Seconds of one round; `generated`: on engines, by crew. `span` receives every stage for the
    timeline, on `track`."""

    def __init__(
        self, span: Span = lambda track, name, start, end: None, track: str = "round-0"
    ) -> None:
        self.track = track
        self._span = span
        self.seconds: Seconds = defaultdict(float)
        self.generated: Seconds = defaultdict(float)
        self.busy = 0.0

    def stage(self, crew: str, name: str, started: float, workers: Sequence[Seconds]) -> None:
        """One stage of a crew. `workers`: the seconds that each worker reports, by kind; `busy` is
        all of it."""
        self._span(self.track, f"{crew} {name}", started, time.perf_counter())
        slowest = max(workers, key=lambda seconds: seconds.get("busy", 0.0), default={})
        for kind, seconds in slowest.items():
            if kind in KINDS:
                self.seconds[f"time/{kind}"] += seconds
            elif kind.startswith(STAGE):
                self.seconds[f"time/search_{kind.removeprefix(STAGE)}"] += seconds
        self.generated[crew] += slowest.get("generate", 0.0)
        self.busy += sum(seconds.get("busy", 0.0) for seconds in workers)

    def shares(self, wall: float, workers: int, learn: float = 0.0) -> Seconds:
        """`time/...` in seconds for a step of `wall` seconds; `learn` is the slower learner's.
        `time/search_<stage>` are parts of `time/search`; `overhead` is wall time that none of these
        is; `idle` is the mean idle time of a worker."""
        seconds = {f"time/{kind}": self.seconds[f"time/{kind}"] for kind in KINDS}
        seconds["time/learn"] += learn
        seconds["time/overhead"] = max(0.0, wall - sum(seconds.values()))
        seconds["time/idle"] = max(0.0, wall - self.busy / max(1, workers))
        seconds["time/step"] = wall
        for name, spent in self.seconds.items():
            seconds.setdefault(name, spent)
        return seconds
