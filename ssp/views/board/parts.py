"""Parts of the document, bounded for any run: spans of the timeline, ratings of versions."""

import json
import os
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

from ssp.base.errors import holding
from ssp.base.intervals import wilson
from ssp.base.played import ANSWERS, ASKS
from ssp.selfplay.league import ratings
from ssp.selfplay.league.payoff import PayoffTable

SPANS = 1500
"""Spans of the timeline that are kept: the newest ones."""
VERSIONS = 240
"""Versions of a role in the standing; the time of a fit grows with the third power, 1 s here."""


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


def standing(table: PayoffTable, mixed: int) -> dict[str, Any]:
    """{solvers, proposers: versions; cells: [solver, proposer, questions, attempts, right, low,
    high]; ratings: role → [version, Elo, standard error]; groups: how many groups of versions no
    game compares with each other; mixed: games left out; left: versions left out}."""
    both = {role: table.versions(role) for role in (ANSWERS, ASKS)}
    kept = {role: versions[-VERSIONS:] for role, versions in both.items()}
    small = PayoffTable()
    small.restore(table.state())
    small.keep(set(kept[ANSWERS]), set(kept[ASKS]))
    effect = small.design_effect()
    cells = []
    groups: list[set[tuple[str, int]]] = []
    for pair in small.pairs():
        questions, graded, right = small.count(*pair)
        low, high = wilson(right / graded, graded / effect)
        cells.append([*pair, questions, graded, right, short(low), short(high)])
        met = {(ANSWERS, pair[0]), (ASKS, pair[1])}
        linked = [group for group in groups if group & met]
        groups = [group for group in groups if not group & met] + [met.union(*linked)]

    fitted = ratings.fit(small, walk=ratings.WALK)
    rated = {}
    for side, name in ((ANSWERS, "solver"), (ASKS, "proposer")):
        versions = small.versions(side)
        rated[name] = [[version, *map(short, fitted.elo(side, version))] for version in versions]
    return {
        "solvers": small.versions(ANSWERS),
        "proposers": small.versions(ASKS),
        "cells": cells,
        "ratings": rated,
        "groups": len(groups),
        "mixed": mixed,
        "left": sum(len(both[role]) - len(kept[role]) for role in both),
    }
