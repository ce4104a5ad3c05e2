"""How much was under way when, and who did what: episodes between issue and end, queues, spans of the timeline.

Owns these three parts of the document. Promises that bounded data come of a run of any length. Refuses to know rounds.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ssp.base.episode import ROLES
from ssp.record.ledger.rows import EpisodeRow
from ssp.telemetry.queuelog import read
from ssp.views.board.tail import Tail

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

    def add(self, episodes: Iterable[EpisodeRow]) -> None:
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
    return _highest(times[order], depth, first, last)


def _highest(times: np.ndarray, depth: np.ndarray, first: float, last: float) -> list[int]:
    """The largest in each part, of what stays as it is until it changes; `times` are in order."""
    place = np.clip((times - first) / max(last - first, 1e-9) * BINS, 0, BINS - 1).astype(int)
    peaks = np.concatenate([[0], depth])[np.searchsorted(place, np.arange(BINS))]  # what goes on from before
    np.maximum.at(peaks, place, depth)
    return [int(peak) for peak in peaks]


def queues(path: Path) -> dict[str, Any]:
    """Of queues.jsonl, which is short: {from, to: seconds since the epoch; items: queue → the most that it held, leased ones
    included, in each of `BINS` equal parts}."""
    lines = read(path) or [{"time": 0.0}]
    times = np.array([line["time"] for line in lines])
    items = {}
    for name in dict.fromkeys(name for line in lines for name in line if name != "time"):
        held = np.array([int(line.get(name, {}).get("items", 0)) for line in lines])
        items[name] = _highest(times, held, times[0], times[-1])
    return {"from": round(float(times[0]), 2), "to": round(float(times[-1]), 2), "items": items}


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
            except (ValueError, RecursionError):
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
