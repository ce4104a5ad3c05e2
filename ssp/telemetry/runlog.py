"""Metrics of a run: metrics.jsonl and TensorBoard. A line is {"step", "role", "time", name: value ...}; a figure that is not
finite is null and named in `not_finite`. Lines of steps that a resume plays again stay, and the last counts."""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ssp.base.errors import InvariantError
from ssp.record.reader import BACK, read_metrics

Sink = Callable[[int, str, dict[str, float]], None]
"""(step, role, finite figures): e.g. the cluster's own metrics, injected by who knows the cluster."""

_OWN = ("step", "role", "time", "not_finite", BACK)


class RunLog:
    """Writer of one run's figures into `folder` (`metrics.jsonl`, `tensorboard/`). `earlier`: what was there before."""

    def __init__(self, folder: str | Path, sinks: Sequence[Sink] = ()) -> None:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "metrics.jsonl"
        if path.exists():  # a kill may leave a line without its end: it was never written
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        self.earlier = read_metrics(path) if path.exists() else []
        self._newest = max((line["step"] for line in self.earlier), default=-1)
        self._file = path.open("a", encoding="utf-8")
        self._folder = folder / "tensorboard"
        self._board = self._open_board()
        self._sinks = sinks
        self._back: dict[str, int] = {}

    def restart(self, step: int) -> None:
        """Play (re)starts after `step`: what is there of later steps is void, and comes again."""
        if self._newest > step:
            self._back = {BACK: step}
            self._board.close()
            self._board = self._open_board(purge_step=step + 1)
            self._newest = step

    def write(self, step: int, role: str, values: Mapping[str, float]) -> None:
        """One line; `role` is proposer, solver, game or eval. InvariantError when a name is one of the line's own keys."""
        if taken := sorted(set(values) & set(_OWN)):
            raise InvariantError(f"metrics may not be called {taken}: the line itself uses these keys")
        figures = {name: float(value) for name, value in values.items()}
        finite = {name: value for name, value in figures.items() if math.isfinite(value)}
        line: dict[str, Any] = {"step": int(step), "role": role, "time": time.time()}
        line.update({name: finite.get(name) for name in figures} | self._back)
        self._back = {}
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
