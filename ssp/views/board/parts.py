"""Parts of the document, bounded for any run: spans of the timeline, the yardstick's rates."""

import json
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

from ssp.base.errors import holding
from ssp.record.reader import Tail

SPANS = 1500
"""Spans of the timeline that are kept: the newest ones."""


def short(value: float | None) -> float | None:
    """The value in five digits: what a picture shows, in half the bytes."""
    return None if value is None else float(f"{value:.5g}")


class Spans:
    """The newest spans of a timeline."""

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path)
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
        """{from: seconds since the epoch; spans: [track, what, start, seconds], start counted from
        there}."""
        first = min((start for _, _, start, _ in self._spans), default=0)
        spans = []
        for track, name, start, length in self._spans:
            began = round((start - first) / 1e6, 4)
            seconds = round(length / 1e6, 4)
            spans.append([self._tracks[track], name, began, seconds])
        return {"from": round(first / 1e6, 2), "spans": spans}


def yardstick(file: Path) -> dict[str, Any] | None:
    """What `ssp bank RUN --yardstick` left: {policy, attempts, rounds: [step, own, low, high,
    yardstick, low, high, questions]}; None without. InputError for a broken file."""
    if not file.exists():
        return None
    odd = (OSError, ValueError, RecursionError)
    with holding(odd, f"{file.name} is JSON", file, "remove it, and measure again"):
        told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return told
