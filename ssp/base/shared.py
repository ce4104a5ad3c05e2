"""Folders in shared memory: whose they are, and what those who are gone left behind.

Promises that a folder of ours is locked as long as its process lives, and that one of a process that is gone is found by
its free lock and removed, whichever run left it. Refuses to delete what another living process owns.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
"""Where files live in memory and every process of the node sees them."""
PREFIX = "ssp-weights-"


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
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)  # files are of earlier versions
            removed.append(path.name)
        except BlockingIOError:  # its owner lives
            pass
        finally:
            os.close(descriptor)
    return removed
