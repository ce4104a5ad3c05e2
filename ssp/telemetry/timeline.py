"""What ran when: spans of work by track, in the Chrome trace format (opens in Perfetto or chrome://tracing).

Owns timeline.json. Promises a bounded number of spans (the newest stay) and a complete file after every `save`; a
resumed run adds to the file. Refuses to know what a track is.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from pathlib import Path
from typing import Any

from ssp.errors import InputError

MAX_SPANS = 100_000


class Timeline:
    """Spans of one run, kept in memory until `save()`. Times are `time.perf_counter()` seconds of this process."""

    def __init__(self, path: str | Path, limit: int = MAX_SPANS) -> None:
        self._path = Path(path)
        self._wall = time.time() - time.perf_counter()
        self._spans: deque[dict[str, Any]] = deque(maxlen=limit)
        self._tracks: dict[str, int] = {}
        if self._path.exists():
            self._load()

    def span(self, track: str, name: str, start: float, end: float) -> None:
        """One piece of work on `track` (a line in the picture) from `start` to `end`."""
        event: dict[str, Any] = {"name": name, "ph": "X", "pid": 1, "tid": self._track(track)}
        event["ts"] = round((self._wall + start) * 1e6)
        event["dur"] = max(0, round((end - start) * 1e6))
        self._spans.append(event)

    def save(self) -> None:
        """Write timeline.json, complete or not at all."""
        names = [
            {"name": "thread_name", "ph": "M", "pid": 1, "tid": number, "args": {"name": track}}
            for track, number in self._tracks.items()
        ]
        aside = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        aside.write_text(json.dumps({"traceEvents": [*names, *self._spans]}), encoding="utf-8")
        os.replace(aside, self._path)

    def _track(self, track: str) -> int:
        return self._tracks.setdefault(track, len(self._tracks) + 1)

    def _load(self) -> None:
        try:
            events = json.loads(self._path.read_text(encoding="utf-8"))["traceEvents"]
        except (ValueError, KeyError, TypeError) as error:
            rule = "an existing timeline must be one that a run wrote"
            raise InputError(rule, f"{self._path} ({error})", "move that file away") from error
        for event in events:
            if event["ph"] == "M":
                self._tracks[event["args"]["name"]] = event["tid"]
            else:
                self._spans.append(event)
