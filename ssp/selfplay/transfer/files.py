"""Files of published weights: their names, who may delete them, and leftovers.

Owns two shelves, one in shared memory and one in the run folder. Promises that only the newest publications stay, and that
a reader of an older one keeps what it has mapped.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ssp.base import shared
from ssp.base.shared import PREFIX, SHARED_MEMORY
from ssp.selfplay.transfer import flat

ENDING = ".safetensors"


class MemoryShelf:
    """Files `ssp-weights-<run>-<role>-<pid>-<serial>.safetensors` in /dev/shm, each locked by this process."""

    def __init__(self, run: str, role: str, keep: int, folder: Path = SHARED_MEMORY) -> None:
        self._stem = f"{PREFIX}{run}-{role}-{os.getpid()}"
        self._folder, self._keep = folder, keep
        self._files: deque[tuple[Path, int]] = deque()
        shared.sweep(folder)

    def put(self, serial: int, weights: Mapping[str, np.ndarray]) -> Path:
        """Write one publication, remove the oldest."""
        path = self._folder / f"{self._stem}-{serial}{ENDING}"
        descriptor = shared.create(path.with_name(path.name + flat.ASIDE))
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
