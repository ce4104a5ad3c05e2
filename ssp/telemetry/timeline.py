"""What ran when: spans of work by track, in the Chrome trace format (opens in Perfetto and chrome://tracing).

Owns timeline.json. Promises that a span is the operating system's when `span` returns, and nothing of it stays in memory;
that the file can be opened at any moment, also after a kill (the format lets the closing bracket be missing); that a resumed
run goes on in it; and that it stays below a size that viewers open: past that it is kept as timeline-1.json, in place of
the one before, and begins anew. Refuses to know what a track is.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from ssp.base.errors import InputError

LIMIT = 200_000_000
"""Bytes of one file."""

Args = Mapping[str, float | str]


class Timeline:
    """Writer of one run's spans. Times are `time.perf_counter()` seconds of this process."""

    def __init__(self, path: str | Path, limit: int = LIMIT) -> None:
        self._path, self._limit = Path(path), limit
        self._wall = time.time() - time.perf_counter()
        self._named: set[str] = set()
        if self._path.exists():
            _reopen(self._path)
        self._file = self._open()

    def span(self, track: str, name: str, start: float, end: float, args: Args | None = None) -> None:
        """One piece of work on `track` (a line in the picture) from `start` to `end`; `args` are shown with it.

        After `close` nothing is written. Tracks that differ in their last number only (solver-0, solver-1) stand together.
        """
        if self._file.closed:
            return  # of a call that the end of the run cut short
        if self._file.tell() > self._limit:
            self._turn()
        # Ends are rounded as starts are, so that a span which begins where another ends does not overlap it: Perfetto drops
        # what overlaps.
        first, last = (round((self._wall + at) * 1e6) for at in (start, end))
        event = {"name": name, "ph": "X", **self._place(track), "ts": first, "dur": max(0, last - first)}
        self._add({**event, "args": dict(args)} if args else event)

    def close(self) -> None:
        """End the file as one JSON array."""
        # An event without a comma after it has to be the last one; this one says when the process ended.
        now = round(time.time() * 1e6)
        end = {"name": "end of the process", "ph": "i", "s": "g", "pid": 0, "tid": 0, "ts": now}
        self._file.write(json.dumps(end) + "\n]\n")
        self._file.close()

    def _place(self, track: str) -> dict[str, int]:
        """Numbers of the track and its group: made of their names, so that a resumed run uses the same ones."""
        stem, _, last = track.rpartition("-")
        group = stem if last.split(" ")[0].isdigit() else track
        place = {"pid": _number(group), "tid": _number(track)}
        if track not in self._named:
            self._named.add(track)
            self._add({"name": "process_name", "ph": "M", **place, "args": {"name": group}})
            self._add({"name": "thread_name", "ph": "M", **place, "args": {"name": track}})
        return place

    def _add(self, event: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(event) + ",\n")

    def _open(self) -> TextIO:
        file = self._path.open("a", buffering=1, encoding="utf-8")
        if not file.tell():
            file.write("[\n")
        return file

    def _turn(self) -> None:
        self.close()
        os.replace(self._path, self._path.with_name(f"{self._path.stem}-1{self._path.suffix}"))
        self._named.clear()
        self._file = self._open()


def _reopen(path: Path) -> None:
    """Make a file ready for more events: without half a line at its end, and without the closing bracket."""
    with path.open("rb+") as file:
        if file.read(2) not in (b"[\n", b""):
            rule, found = "an existing timeline must be one that a run wrote", f"{path} (it does not begin as one)"
            raise InputError(rule, found, "move that file away")
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - 65536)
        file.seek(start)
        tail = file.read()
        kept = tail[: tail.rfind(b"\n") + 1]
        closed = kept.endswith(b"}\n]\n")
        file.truncate(start + len(kept) - (len("\n]\n") if closed else 0))
        if closed:
            file.seek(0, os.SEEK_END)
            file.write(b",\n")


def _number(name: str) -> int:
    return zlib.crc32(name.encode()) & 0x7FFFFFFF
