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
    """Writer of the scalars of one run into `folder`, a folder a role: TensorBoard takes each for a
    run, and lays the same figure of two roles over each other. Making it touches nothing: `open`
    does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = _library("event_file_writer")
        self._event = _library("proto.event_pb2")
        self._summary = _library("summary")

        self._writers: dict[str, Any] = {}
        self._flushed = 0.0

    def open(self) -> None:
        """See that there is a place for them."""
        self._folder.mkdir(parents=True, exist_ok=True)

    def _writer(self, role: str) -> Any:
        """The writer of a role's newest file."""
        if role not in self._writers:
            folder = self._folder / role
            folder.mkdir(exist_ok=True)
            # Two writers of one second would share a file, and the second empty it; files are read
            # in the order of names.
            suffix = f".{time.time_ns()}"
            self._writers[role] = self._file.EventsWriter(str(folder / "events"), suffix)
        return self._writers[role]

    def restart(self, step: int) -> None:
        """Play restarts after `step`: what is there of later steps is no longer shown."""
        self.close()
        start = self._event.SessionLog(status=self._event.SessionLog.START)
        for role in sorted(folder.name for folder in self._folder.iterdir() if folder.is_dir()):
            self._writer(role).write_event(self._event.Event(step=step + 1, session_log=start))

    def write(self, step: int, role: str, values: Mapping[str, float]) -> None:
        """One row of figures."""
        now = time.time()
        writer = self._writer(role)
        for name, value in values.items():
            shown = self._summary.scalar(name, value)
            writer.write_event(self._event.Event(wall_time=now, step=step, summary=shown))
        if now > self._flushed + EVERY:
            self._flushed = now
            for each in self._writers.values():
                each.flush()

    def close(self) -> None:
        """Flush and close."""
        for writer in self._writers.values():
            writer.close()
        self._writers = {}


def _library(module: str) -> Any:
    """A part of tensorboardX, without torch, which it takes along where it can: 130 MB that nothing
    else here needs."""
    with without("torch"):
        return importlib.import_module(f"tensorboardX.{module}")
