"""A timeline held against the rules of the Trace Event Format, as Perfetto and chrome://tracing read it.

Owns the rules that bite: a file may lack its end, never be broken elsewhere; times are whole microseconds; spans of a track
lie beside or inside each other, the outer one first (Perfetto drops those that overlap by a microsecond); every track and
process has its name, once.
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

FIELDS = {
    "X": {"name", "ph", "pid", "tid", "ts", "dur"},
    "M": {"name", "ph", "pid", "tid", "args"},
    "i": {"name", "ph", "pid", "tid", "ts", "s"},
}
"""What an event of each phase has; X may have args too."""
EXACT = 1 << 53
"""Up to here JavaScript's numbers are exact."""


def trace(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Spans of every track in the order of their starts. Fails where the file breaks a rule."""
    events = read(path)
    names: dict[tuple[int, int], set[str]] = defaultdict(set)
    processes: dict[int, set[str]] = defaultdict(set)
    spans: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        _sound(event)
        place = event["pid"], event["tid"]
        if event["name"] == "thread_name":
            names[place].add(event["args"]["name"])
        elif event["name"] == "process_name":
            processes[event["pid"]].add(event["args"]["name"])
        elif event["ph"] == "X":
            spans[place].append(event)
    assert set(spans) <= set(names), "a track without a name is a number in the picture"
    assert all(len(found) == 1 for found in (*names.values(), *processes.values())), (names, processes)
    assert {pid for pid, _ in spans} <= set(processes)
    tracks = {next(iter(names[place])): found for place, found in spans.items()}
    assert len(tracks) == len(spans) == len({tid for _, tid in spans})  # Perfetto knows a thread by its tid alone
    return {track: _nested(track, found) for track, found in tracks.items()}


def busy(tracks: dict[str, list[dict[str, Any]]], actor: str, window: tuple[float, float] = (0, math.inf)) -> float:
    """Seconds in which an actor did something, on whichever of its lines; the rest is empty or says what it waited for.

    `window`: of these only, in seconds since 1970.
    """
    first, last = window[0] * 1e6, window[1] * 1e6
    lines = [spans for track, spans in tracks.items() if _is_line(track, actor)]
    work = [span for spans in lines for span in spans if not span["name"].startswith("wait: ")]
    total, over = 0.0, first
    for span in sorted(work, key=lambda span: span["ts"]):
        end = min(last, span["ts"] + span["dur"])
        total += max(0.0, end - max(over, span["ts"]))
        over = max(over, end)
    return total / 1e6


def _is_line(track: str, actor: str) -> bool:
    stem, _, line = track.partition(" ")
    return stem == actor and (not line or line.isdigit())


def read(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("["), "an array of events"

    def not_json(word: str) -> None:
        raise AssertionError(f"{word} is not JSON, and no viewer reads it")

    if not text.endswith("]\n"):  # its writer was killed: the end may be missing, and half a line
        text = text[: text.rindex("\n")].rstrip().removesuffix(",") + "]"
    found: list[dict[str, Any]] = json.loads(text, parse_constant=not_json)
    return found


def _sound(event: dict[str, Any]) -> None:
    phase = event["ph"]
    assert FIELDS[phase] <= set(event) <= FIELDS[phase] | {"args"}, event
    assert isinstance(event["name"], str) and event["name"]
    for key in ("pid", "tid"):
        assert type(event[key]) is int and 0 <= event[key] < 1 << 31, event
    if phase == "M":
        assert event["name"] in ("thread_name", "process_name") and event["args"]["name"], event
        return
    for key in ("ts", "dur") if phase == "X" else ("ts",):
        assert type(event[key]) is int and 0 <= event[key] < EXACT, event
    now = time.time() * 1e6
    assert now - 24 * 3600e6 < event["ts"] <= event["ts"] + event.get("dur", 0) < now + 1e6, "microseconds, of today"
    assert all(isinstance(value, int | float | str) for value in event.get("args", {}).values()), event
    assert event.get("s", "g") in "gpt"


def _nested(track: str, spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By start; of two that start together, the one that the file has first is the outer one."""
    spans = sorted(spans, key=lambda span: span["ts"])
    ends: list[int] = []
    for span in spans:
        while ends and ends[-1] <= span["ts"]:
            ends.pop()
        end = span["ts"] + span["dur"]
        assert not ends or end <= ends[-1], (track, span, "ends after the span that it began in")
        ends.append(end)
    return spans
