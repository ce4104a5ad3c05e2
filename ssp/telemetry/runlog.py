"""Metrics of a run: metrics.jsonl and TensorBoard. A line is {"step", "role", "time", name: value
...}; a figure that is not finite is null and named in `not_finite`. Lines of steps that a resume
plays again stay, and the last counts."""

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ssp.base.errors import InputError, InvariantError
from ssp.base.files import end_of_lines, set_aside
from ssp.base.values import Values
from ssp.record.reader import BACK, read_metrics
from ssp.telemetry.outlet import PATIENCE, Outlet
from ssp.telemetry.tensorboard import TensorBoard

T = TypeVar("T")

Sink = Callable[[int, str, Values], None]
"""(step, role, finite figures): e.g. the cluster's own metrics, injected by who knows the
cluster."""

NO_SINKS: Mapping[str, Sink] = {}

_OWN = ("step", "role", "time", "not_finite", BACK)


class RunLog:
    """Writer of one run's figures into `folder` (`metrics.jsonl`, `tensorboard/`), and to `sinks`,
    by name.

    `earlier`: what was there before. `say` is told what is not written any more, or could not be
    gone on in."""

    def __init__(
        self,
        folder: str | Path,
        sinks: Mapping[str, Sink] = NO_SINKS,
        say: Callable[[str], object] = str,
    ) -> None:
        self._path = Path(folder) / "metrics.jsonl"
        self.earlier = anew(self._path, self._read, say)
        self._newest = max((line["step"] for line in self.earlier), default=-1)
        self._back: dict[str, int] = {}
        self._lines = Outlet(self._path.name, say)
        self._scalars = Outlet("tensorboard", say)
        self._sinks = [(Outlet(name, say), sink) for name, sink in sinks.items()]
        self._board = TensorBoard(self._path.parent / "tensorboard")
        self._lines.do(self._open, PATIENCE)
        self._scalars.do(self._board.open)

    def restart(self, step: int) -> None:
        """Play (re)starts after `step`: what is there of later steps is void, and comes again."""
        if self._newest > step:
            self._back = {BACK: step}
            self._scalars.do(partial(self._board.restart, step))
            self._newest = step

    def write(self, step: int, role: str, values: Mapping[str, float]) -> None:
        """One line; `role` plays, or is game or eval. InvariantError when a name is one of
        the line's own keys."""
        taken = sorted(set(values) & set(_OWN))
        if taken:
            rule = f"metrics may not be called {taken}"
            raise InvariantError(f"{rule}: the line itself uses these keys")
        figures = {name: float(value) for name, value in values.items()}
        finite = {name: value for name, value in figures.items() if math.isfinite(value)}
        line: dict[str, Any] = {"step": int(step), "role": role, "time": time.time()}
        for name in figures:
            line[name] = finite.get(name)
        line |= self._back
        self._back = {}
        if len(finite) < len(figures):
            line["not_finite"] = sorted(set(figures) - set(finite))
        self._newest = max(self._newest, step)
        # A checkpoint that is saved next finds the lines of its step.
        text = json.dumps(line, allow_nan=False)
        self._lines.do(partial(self._add, text), PATIENCE)
        self._scalars.do(partial(self._board.write, step, role, finite))
        for outlet, sink in self._sinks:
            outlet.do(partial(sink, step, role, finite))

    def close(self) -> None:
        """Flush both files and close them."""
        self._lines.do(lambda: self._file.close(), PATIENCE)
        self._scalars.do(self._board.close, PATIENCE)
        for outlet, _ in self._sinks:
            outlet.do(str, PATIENCE)

    def _read(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        # A kill may leave a line without its end: it was never written.
        os.truncate(self._path, end_of_lines(self._path))
        return read_metrics(self._path)

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("a", encoding="utf-8")

    def _add(self, line: str) -> None:
        self._file.write(line + "\n")
        self._file.flush()


def anew(path: Path, start: Callable[[], T], say: Callable[[str], object]) -> T:
    """What `start` gives. Where it cannot go on in the file at `path`, that file is set aside,
    `say` hears of it, and `start` begins a new one."""
    try:
        return start()
    except (InputError, OSError) as error:
        moved = set_aside(path)
        reason = error.found if isinstance(error, InputError) else error
        now = f"it is {moved.name} now, and a new one begins"
        say(f"{path.name} cannot be gone on in ({reason}): {now}")
        return start()
