"""Metrics of a run: metrics.jsonl and TensorBoard; and what its queues held: queues.jsonl. A line of metrics is {"step",
"role", "time", name: value ...}; a figure that is not finite is null and named in `not_finite`. Lines of steps that a
resume plays again stay, and the last counts."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ssp.base.errors import InvariantError
from ssp.record.reader import read_metrics

Sink = Callable[[int, str, dict[str, float]], None]
"""(step, role, finite figures): e.g. the cluster's own metrics, injected by who knows the cluster."""

_OWN = ("step", "role", "time", "not_finite")

SILENT = 60.0
"""Seconds without a change after which there is a line all the same."""


class RunLog:
    """Writer of one run's figures into `folder` (`metrics.jsonl`, `tensorboard/`). `earlier`: what was there before."""

    def __init__(self, folder: str | Path, sinks: Sequence[Sink] = ()) -> None:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "metrics.jsonl"
        cut_half_line(path)
        self.earlier = read_metrics(path) if path.exists() else []
        self._newest = max((line["step"] for line in self.earlier), default=-1)
        self._file = path.open("a", encoding="utf-8")
        self._folder = folder / "tensorboard"
        self._board = self._open_board()
        self._sinks = sinks

    def restart(self, step: int) -> None:
        """Play (re)starts after `step`: what TensorBoard has of later steps is void, and comes again."""
        if self._newest > step:
            self._board.close()
            self._board = self._open_board(purge_step=step + 1)
            self._newest = step

    def write(self, step: int, role: str, values: Mapping[str, float]) -> None:
        """One line; `role` is proposer, solver, game or eval. InvariantError when a name is one of the line's own keys."""
        taken = sorted(set(values) & set(_OWN))
        if taken:
            raise InvariantError(f"metrics may not be called {taken}: the line itself uses these keys")
        figures = {name: float(value) for name, value in values.items()}
        finite = {name: value for name, value in figures.items() if math.isfinite(value)}
        line: dict[str, Any] = {"step": int(step), "role": role, "time": time.time()}
        line.update({name: finite.get(name) for name in figures})
        if len(finite) < len(figures):
            line["not_finite"] = sorted(set(figures) - set(finite))
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()
        self._newest = max(self._newest, step)
        for name, value in finite.items():
            self._board.add_scalar(f"{role}/{name}", value, step)
        for sink in self._sinks:
            sink(step, role, finite)

    def close(self) -> None:
        """Flush both files and close them."""
        self._file.close()
        self._board.close()

    def _open_board(self, **options: Any) -> Any:
        # Two writers of one second would share a file, and the second empty it; files are read in the order of names.
        suffix = f".{time.time_ns()}"
        return _summary_writer()(logdir=str(self._folder), flush_secs=10, filename_suffix=suffix, **options)


class QueueLog:
    """Writer of queues.jsonl, which goes on in the file that is there. A line is {"time", queue: {"items", "bytes",
    "leased", "age"}, ...}: what a queue said last; a line without any stands where a process had ended."""

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
                if before := read_queues(self._path):
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


def cut_half_line(path: Path) -> None:
    """A kill may leave a line without its end: it was never written."""
    if not path.exists():
        return
    content = path.read_bytes()
    os.truncate(path, content.rfind(b"\n") + 1)


def _summary_writer() -> Any:
    """tensorboardX's writer, without torch, which it takes along where it can: 130 MB that nothing else here needs."""
    modules: dict[str, Any] = sys.modules
    hidden = "torch" not in modules
    if hidden:
        modules["torch"] = None  # makes its import fail, for which tensorboardX is prepared
    try:
        from tensorboardX import SummaryWriter
    finally:
        if hidden:
            del modules["torch"]
    return SummaryWriter


def read_queues(path: Path) -> list[dict[str, Any]]:
    """The lines of a queues.jsonl that are whole; others are left out."""
    found = []
    for text in path.read_text("utf-8", "replace").split("\n") if path.exists() else ():
        with suppress(ValueError, RecursionError):
            line = json.loads(text)
            if isinstance(line, dict) and isinstance(line.get("time"), float):
                found.append(line)
    return found
