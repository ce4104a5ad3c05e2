"""How much was under way when, and who did what: episodes between issue and end, spans of the timeline.

Owns these two parts of the document. Promises that bounded data come of a run of any length. Refuses to know rounds.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ssp.board.tail import Tail
from ssp.episode import ROLES

BINS = 240
SPANS, BYTES = 1500, 2_000_000
"""Of the timeline: the newest spans, and what is read of a long file to find them."""


def short(value: float | None) -> float | None:
    """Five digits: what a picture shows, in half the bytes."""
    return None if value is None else float(f"{value:.5g}")


class Depth:
    """Episodes under way over time, by role. `open`: ids of those that had not ended when they were last seen."""

    def __init__(self) -> None:
        self._spans: dict[str, list[tuple[float, float]]] = {role: [] for role in ROLES}
        self._open: dict[str, tuple[str, float]] = {}

    @property
    def open(self) -> list[str]:
        """These ids."""
        return list(self._open)

    def add(self, episodes: Iterable[dict[str, Any]]) -> None:
        """Rows of the ledger; of an episode that has ended once only, of another one as often as one likes."""
        for row in episodes:
            if row["role"] not in self._spans:
                continue
            if row["finished"] is None:
                self._open[row["id"]] = row["role"], row["created"]
            else:
                self._open.pop(row["id"], None)
                self._spans[row["role"]].append((row["created"], row["finished"]))

    def shown(self) -> dict[str, Any]:
        """{from, to: seconds since the epoch; role → the largest number under way in each of `BINS` equal parts}."""
        late = [created for _, created in self._open.values()]
        first = min((created for spans in self._spans.values() for created, _ in spans), default=min(late, default=0.0))
        last = max((end for spans in self._spans.values() for _, end in spans), default=first)
        last = max(last, *late) if late else last
        found: dict[str, Any] = {"from": round(first, 2), "to": round(last, 2)}
        for role, spans in self._spans.items():
            began = [created for of, created in self._open.values() if of == role]
            found[role] = _peaks(np.array(spans).reshape(-1, 2), np.array(began), first, last)
        return found


def _peaks(spans: np.ndarray, began: np.ndarray, first: float, last: float) -> list[int]:
    times = np.concatenate([spans[:, 0], began, spans[:, 1]])
    change = np.concatenate([np.ones(len(spans) + len(began)), -np.ones(len(spans))]).astype(int)
    # Where one ends and another begins at the same moment, both are under way.
    order = np.lexsort((-change, times))
    depth = np.cumsum(change[order])
    place = np.clip((times[order] - first) / max(last - first, 1e-9) * BINS, 0, BINS - 1).astype(int)
    peaks = np.zeros(BINS, dtype=int)
    np.maximum.at(peaks, place, depth)
    before = 0  # what goes on through a part without a change
    ends = np.searchsorted(place, np.arange(BINS), side="right")
    for at in range(BINS):
        peaks[at] = max(peaks[at], before)
        before = int(depth[ends[at] - 1]) if ends[at] else 0
    return [int(peak) for peak in peaks]


class Spans:
    """The newest spans of a timeline."""

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path, BYTES)
        self._tracks: defaultdict[int, str] = defaultdict(lambda: "?")
        self._spans: deque[tuple[int, str, int, int]] = deque(maxlen=SPANS)

    def look(self) -> bool:
        """Take in what is new; whether there was anything."""
        lines = self._tail.lines()
        for line in lines:
            try:
                event = json.loads(line.rstrip().rstrip(","))
            except ValueError:
                continue  # brackets, and the line in which a kill came
            if isinstance(event, dict) and event.get("name") == "thread_name":
                self._tracks[event["tid"]] = event["args"]["name"]
            elif isinstance(event, dict) and event.get("ph") == "X":
                self._spans.append((event["tid"], event["name"], event["ts"], event["dur"]))
        return bool(lines)

    def shown(self) -> dict[str, Any]:
        """{from: seconds since the epoch; spans: [track, what, start, seconds], start counted from there}."""
        first = min((start for _, _, start, _ in self._spans), default=0)
        spans = [
            [self._tracks[track], name, round((start - first) / 1e6, 4), round(length / 1e6, 4)]
            for track, name, start, length in self._spans
        ]
        return {"from": round(first / 1e6, 2), "spans": spans}
