"""What the queues of a run held, kept in its folder: queues.jsonl.

A line is {"time", queue: {"items", "bytes", "leased", "age"}, ...}; of a queue that did not answer, what it said before; one
with no queue: none from then on, since a process had ended. Promises a line when something changed, else one a minute, and
that what goes wrong here is said once and costs a run nothing but this file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ssp.telemetry.runlog import cut_half_line

SILENT = 60.0
"""Seconds without a change after which there is a line all the same."""


class QueueLog:
    """Writer of one process; goes on in the file that is there. `say`: a line for the user."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path, self._say, self._failed, self._begun = path, say, False, False
        self._last, self._held, self._told = 0.0, list[Any](), dict[str, Mapping[str, float]]()

    def write(self, told: Mapping[str, Mapping[str, float]]) -> None:
        """What the queues that answered say of themselves (`LeaseQueue.figures`)."""
        self._told |= told
        held = [(name, one["items"], one["bytes"], one["leased"]) for name, one in self._told.items()]
        if self._failed or not told or (held == self._held and time.time() < self._last + SILENT):
            return
        self._held = held
        try:
            if not self._begun:
                cut_half_line(self._path)
                if before := read(self._path):
                    self._add(before[-1]["time"], {})
                self._begun = True
            self._add(time.time(), self._told)
        except OSError as error:
            self._failed = True
            self._say(f"{self._path.name} is not written any more: {error}")

    def _add(self, now: float, told: Mapping[str, Mapping[str, float]]) -> None:
        self._last = max(now, self._last)  # a clock may be put back
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": self._last, **told}) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that are whole; others are left out."""
    found = []
    for text in path.read_text("utf-8", "replace").split("\n") if path.exists() else ():
        with suppress(ValueError, RecursionError):
            line = json.loads(text)
            if isinstance(line, dict) and isinstance(line.get("time"), float):
                found.append(line)
    return found
