"""Metrics of a run: metrics.jsonl, TensorBoard, and one optional sink.

Owns the form of a line: {"step", "role", "time", name: value ...}, one a step and role.
Promises that every line is valid JSON and on its way to the disk when `write` returns; a figure that is not finite is
written as null and named in the line's `not_finite`. Lines of steps that a resume plays again stay; the last counts.
Refuses to know what a figure means, and who collects the sink.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

from ssp.errors import InputError, InvariantError

Sink = Callable[[int, str, dict[str, float]], None]
"""(step, role, finite figures): e.g. the cluster's own metrics, injected by who knows the cluster."""

_OWN = ("step", "role", "time", "not_finite")


class RunLog:
    """Writer of one run's figures into `folder` (`metrics.jsonl`, `tensorboard/`). Appends to what is there."""

    def __init__(self, folder: str | Path, sink: Sink | None = None) -> None:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "metrics.jsonl"
        _cut_half_line(path)
        self._file = path.open("a", encoding="utf-8")
        self._board = SummaryWriter(logdir=str(folder / "tensorboard"), flush_secs=10)
        self._sink = sink

    def write(self, step: int, role: str, values: Mapping[str, float]) -> None:
        """One line for (step, role): `role` is proposer, solver, game or eval; `values` are plain numbers by name.

        TensorBoard gets the finite ones under `role/name`. InvariantError when a name is one of the line's own keys.
        """
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
        for name, value in finite.items():
            self._board.add_scalar(f"{role}/{name}", value, step)
        if self._sink is not None:
            self._sink(step, role, finite)

    def close(self) -> None:
        """Flush both files and close them."""
        self._file.close()
        self._board.close()


def _cut_half_line(path: Path) -> None:
    """A kill may leave a line without its end: it was never written."""
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole != len(content):
        os.truncate(path, whole)


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl, the last one of each (step, role), sorted by step (roles in order of appearance).

    An unfinished last line is left out; a broken line elsewhere, or a missing file, raises InputError.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("a metrics file must exist", path, "give the metrics.jsonl of a run folder")
    latest: dict[tuple[int, str], dict[str, Any]] = {}
    for number, text in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1], start=1):
        try:
            line = json.loads(text)
            latest[int(line["step"]), str(line["role"])] = line
        except (ValueError, KeyError, TypeError) as error:
            rule = "every finished line of a metrics file must be an object with step and role"
            raise InputError(rule, f"{path}, line {number}: {text[:80]}", "remove that line") from error
    return sorted(latest.values(), key=lambda line: int(line["step"]))
