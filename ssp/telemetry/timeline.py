"""What ran when: spans of work by track, in the Chrome trace format (Perfetto, chrome://tracing).
The file can be opened at any moment, also after a kill (the format lets the closing bracket be
missing), and a resumed run goes on in it."""

import json
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ssp.base.errors import hold
from ssp.base.files import end_of_lines


class Timeline:
    """Writer of one run's spans. Times are `time.perf_counter()` seconds of this process."""

    def __init__(self, path: str | Path) -> None:
        self._wall = time.time() - time.perf_counter()
        self._places: dict[str, dict[str, int]] = {}
        if Path(path).exists():
            _reopen(Path(path))
        self._file = open(path, "a", buffering=1, encoding="utf-8")  # noqa: SIM115
        if not self._file.tell():
            self._file.write("[\n")

    def span(
        self,
        track: str,
        name: str,
        start: float,
        end: float,
        args: Mapping[str, float | str] | None = None,
    ) -> None:
        """One piece of work on `track`, a line in the picture. Tracks that differ in their last
        number stand together."""
        if self._file.closed:
            return  # of a call that the end of the run cut short
        # Ends are rounded as starts are, so that a span which begins where another ends does not
        # overlap it: Perfetto drops what overlaps.
        first = round((self._wall + start) * 1e6)
        last = round((self._wall + end) * 1e6)
        event: dict[str, Any] = {"name": name, "ph": "X", **self._place(track)}
        event |= {"ts": first, "dur": max(0, last - first)}
        if args:
            event["args"] = dict(args)
        self._add(event)

    def close(self) -> None:
        """End the file as one JSON array."""
        # An event without a comma after it has to be the last one; this one says when the process
        # ended.
        end = {"name": "end of the process", "ph": "i", "s": "g", "pid": 0, "tid": 0}
        end["ts"] = round(time.time() * 1e6)
        self._file.write(json.dumps(end) + "\n]\n")
        self._file.close()

    def _place(self, track: str) -> dict[str, int]:
        """Numbers of the track and its group: made of their names, so that a resumed run uses the
        same ones."""
        if track not in self._places:
            stem, _, last = track.rpartition("-")
            group = stem if last.split(" ")[0].isdigit() else track
            place = {"pid": _number(group), "tid": _number(track)}
            self._places[track] = place
            self._add({"name": "process_name", "ph": "M", **place, "args": {"name": group}})
            self._add({"name": "thread_name", "ph": "M", **place, "args": {"name": track}})
        return self._places[track]

    def _add(self, event: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(event) + ",\n")


def _number(name: str) -> int:
    return zlib.crc32(name.encode()) & 0x7FFFFFFF


def _reopen(path: Path) -> None:
    """Make a file ready for more events: without half a line at its end, and without the closing
    bracket."""
    closing = b"\n]\n"
    end = end_of_lines(path)
    with path.open("rb+") as file:
        rule = "an existing timeline must be one that a run wrote"
        odd = f"{path} (it does not begin as one)"
        hold(file.read(2) in (b"[\n", b""), rule, odd, "move that file away")
        before = max(0, end - len(closing))
        file.seek(before)
        closed = file.read(end - before) == closing
        file.truncate(file.seek(before if closed else end))
        file.write(b",\n" if closed else b"")
