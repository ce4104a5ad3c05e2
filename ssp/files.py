"""Files that are there whole, or as they were before.

Owns the way: written aside in the same folder, then renamed. Refuses to know what is in them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path, sync: bool = False) -> Iterator[Path]:
    """Where to write: it becomes `path` when the block ends well, and is gone otherwise. Makes the folder.

    `sync`: it has reached the disk before it is renamed, so that a machine may fail too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield aside
        if sync:
            with aside.open("rb") as file:
                os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        if os.path.exists(aside):  # False, where Path.exists raises for a name that is too long
            aside.unlink()
