"""Files of published weights: their names, who may delete them, and leftovers.

Owns two shelves, one in shared memory and one in the run folder, and folders in memory for one reader. Promises that only
the newest publications stay, that a reader of an older one keeps what it has mapped, and that what a process that is gone
left in memory is found by its free lock and removed, whichever run left it. Refuses to delete what another living process
owns.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from ssp.selfplay.transfer import flat
from ssp.selfplay.transfer.parcel import SHARED_MEMORY

PREFIX, ENDING = "ssp-weights-", ".safetensors"


class MemoryShelf:
    """Files `ssp-weights-<run>-<role>-<pid>-<serial>.safetensors` in /dev/shm, each locked by this process."""

    def __init__(self, run: str, role: str, keep: int, folder: Path = SHARED_MEMORY) -> None:
        self._stem = f"{PREFIX}{run}-{role}-{os.getpid()}"
        self._folder, self._keep = folder, keep
        self._files: deque[tuple[Path, int]] = deque()
        sweep(folder)

    def put(self, serial: int, weights: Mapping[str, np.ndarray]) -> Path:
        """Write one publication, remove the oldest."""
        path = self._folder / f"{self._stem}-{serial}{ENDING}"
        descriptor = _create(path.with_name(path.name + flat.ASIDE))
        try:
            flat.write(path, weights, descriptor)
        except BaseException:
            path.with_name(path.name + flat.ASIDE).unlink(missing_ok=True)
            os.close(descriptor)
            raise
        self._files.append((path, descriptor))
        self._shrink(self._keep)
        return path

    def close(self) -> None:
        """Remove all."""
        self._shrink(0)

    def _shrink(self, most: int) -> None:
        while len(self._files) > most:
            path, descriptor = self._files.popleft()
            path.unlink(missing_ok=True)
            os.close(descriptor)


class DiskShelf:
    """Files `<run folder>/weights/<role>/<serial>.safetensors`. The run folder's lock says that they are ours."""

    def __init__(self, run_folder: Path, role: str, keep: int) -> None:
        self._folder, self._keep = run_folder / "weights" / role, keep
        self._files: deque[Path] = deque()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)

    def put(self, serial: int, weights: Mapping[str, np.ndarray]) -> Path:
        """Write one publication, remove the oldest."""
        path = self._folder / f"{os.getpid()}-{serial}{ENDING}"
        aside = path.with_name(path.name + flat.ASIDE)
        descriptor = os.open(aside, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
        try:
            flat.write(path, weights, descriptor)
        finally:
            os.close(descriptor)
            aside.unlink(missing_ok=True)
        self._files.append(path)
        while len(self._files) > self._keep:
            self._files.popleft().unlink(missing_ok=True)
        return path

    def close(self) -> None:
        """Remove all."""
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def folder() -> Iterator[Path]:
    """An empty folder in memory, as long as the context lives; what a process that was killed in one has left goes first."""
    home = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    sweep(home)
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=home))
        with suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if path.exists():  # else another start swept it away before it was locked
                break
            os.close(descriptor)
    try:
        yield path
    finally:
        os.close(descriptor)
        shutil.rmtree(path, ignore_errors=True)


def sweep(folder: Path = SHARED_MEMORY) -> list[str]:
    """Remove what dead processes left in shared memory; the names. Other users' files are left alone."""
    removed = []
    for path in sorted(folder.glob(f"{PREFIX}*")):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:  # gone since, or another user's
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            removed.append(path.name)
        except BlockingIOError:  # its owner lives
            pass
        finally:
            os.close(descriptor)
    return removed


def _create(path: Path) -> int:
    """A new file, locked by this process for as long as it lives or keeps the descriptor."""
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.exists():  # else another start swept it away before it was locked
            return descriptor
        os.close(descriptor)
