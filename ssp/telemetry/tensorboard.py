"""TensorBoard's files, written at once: a writer that cannot write says so."""

import importlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ssp.base.imports import without

EVERY = 10.0
"""Seconds after which figures reach the disk."""


class TensorBoard:
    """Writer of the scalars of one run into `folder`. Making it touches nothing: `open` does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = _library("event_file_writer")
        self._event = _library("proto.event_pb2")
        self._summary = _library("summary")

    def open(self) -> None:
        """Begin a new file."""
        self._folder.mkdir(parents=True, exist_ok=True)
        # Two writers of one second would share a file, and the second empty it; files are read in
        # the order of names.
        suffix = f".{time.time_ns()}"
        self._writer = self._file.EventsWriter(str(self._folder / "events"), suffix)
        self._flushed = 0.0

    def restart(self, step: int) -> None:
        """Play restarts after `step`: what is there of later steps is no longer shown."""
        self._writer.close()
        self.open()
        start = self._event.SessionLog(status=self._event.SessionLog.START)
        self._writer.write_event(self._event.Event(step=step + 1, session_log=start))

    def write(self, step: int, role: str, values: Mapping[str, float]) -> None:
        """One row of figures; their tags begin with `role`."""
        now = time.time()
        for name, value in values.items():
            shown = self._summary.scalar(f"{role}/{name}", value)
            self._writer.write_event(self._event.Event(wall_time=now, step=step, summary=shown))
        if now > self._flushed + EVERY:
            self._flushed = now
            self._writer.flush()

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


def _library(module: str) -> Any:
    """A part of tensorboardX, without torch, which it takes along where it can: 130 MB that nothing
    else here needs."""
    with without("torch"):
        return importlib.import_module(f"tensorboardX.{module}")
