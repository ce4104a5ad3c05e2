"""What the queues of a run held, kept in its folder: queues.jsonl.

Owns the form of a line: {"time", queue: {"items", "bytes", "leased", "age"}, ...}; of a queue that did not answer, what it
said before; a line with no queue: none from then on, since a process had ended. Promises a line when something changed, else
one a minute; times that never go back; that a file of any run stays short (old lines are thinned out); and that what goes
wrong here is said once and costs a run nothing but this file. Refuses to ask a queue.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from ssp.base.files import whole
from ssp.telemetry.runlog import cut_half_line

MOST = 10_000
"""Lines of a file: about 3 MB, the first 14 hours of a run in which something always changes."""
SILENT = 60.0
"""Seconds without a change after which there is a line all the same."""


class QueueLog:
    """Writer of one process; goes on in the file that is there. `say`: a line for the user."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path, self._say, self._failed = path, say, False
        self._count, self._last, self._held, self._told = -1, 0.0, list[Any](), dict[str, Mapping[str, float]]()

    def write(self, told: Mapping[str, Mapping[str, float]]) -> None:
        """What the queues that answered say of themselves (`LeaseQueue.figures`)."""
        self._told |= told
        held = [(name, one["items"], one["bytes"], one["leased"]) for name, one in self._told.items()]
        if self._failed or not told or (held == self._held and time.time() < self._last + SILENT):
            return
        self._held = held
        try:
            if self._count < 0:
                cut_half_line(self._path)
                self._count = len(before := read(self._path))
                if before:
                    self._add(before[-1]["time"], {})
            self._add(time.time(), self._told)
        except OSError as error:
            self._failed = True
            self._say(f"{self._path.name} is not written any more: {error}")

    def _add(self, now: float, told: Mapping[str, Mapping[str, float]]) -> None:
        self._last = max(now, self._last)  # a clock may be put back
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": self._last, **told}) + "\n")
        self._count += 1
        if self._count > MOST:
            kept = thinned(read(self._path), MOST // 2)
            with whole(self._path) as aside:
                aside.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
            self._count = len(kept)


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that are whole; others are left out."""
    found = []
    for text in path.read_text("utf-8", "replace").split("\n") if path.exists() else ():
        with suppress(ValueError, RecursionError):
            line = json.loads(text)
            if isinstance(line, dict) and isinstance(line.get("time"), float):
                found.append(line)
    return found


def thinned(lines: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """At most `most` of these: of equal parts of the time each queue's fullest line, one with no queue, and the last one."""
    names = sorted({name for line in lines for name in line} - {"time"})
    parts, first = max(1, most // (len(names) + 2)), lines[0]["time"]
    width = max(lines[-1]["time"] - first, 1e-9) / parts
    kept: set[int] = set()
    for _, part in groupby(range(len(lines)), lambda at: min(int((lines[at]["time"] - first) / width), parts - 1)):
        places = list(part)
        kept.update(max(places, key=lambda at: lines[at].get(name, {}).get("items", 0)) for name in names)
        kept |= {next((at for at in places if len(lines[at]) == 1), places[-1]), places[-1]}
    return [lines[at] for at in sorted(kept)]
