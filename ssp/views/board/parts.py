"""Parts of the document, bounded for any run: spans of the timeline, the yardstick's rates."""

import json
import os
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

from ssp.base.errors import holding

SPANS = 1500
"""Spans of the timeline that are kept: the newest ones."""


def short(value: float | None) -> float | None:
    """The value in five digits: what a picture shows, in half the bytes."""
    return None if value is None else float(f"{value:.5g}")


class Tail:
    """Reads what is appended to `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._at = 0

    def lines(self) -> list[str]:
        """The lines since the last call; none when there is no file yet."""
        if not self._path.is_file():
            return []
        with self._path.open("rb") as file:
            status = os.fstat(file.fileno())
            # A run that goes on takes the closing bracket of its timeline away.
            self._at = min(self._at, status.st_size) if status.st_ino == self._file else 0
            file.seek(self._at)
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        self._file = status.st_ino
        self._at = self._at + len(data)
        return data.decode("utf-8", "replace").split("\n")[:-1]


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
