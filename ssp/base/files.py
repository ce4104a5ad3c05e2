"""Files that are there whole, or as they were before."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BLOCK = 1 << 16
"""Bytes that are read at once where the end of a file is looked for."""


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk, in case the machine fails."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def digest(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def end_of_lines(path: Path) -> int:
    """Bytes up to the end of a file's last whole line, of which only the end is read."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - BLOCK)
            file.seek(start)
            at = file.read(end - start).rfind(b"\n")
            if at >= 0:
                return start + at + 1
            end = start
    return 0


def set_aside(path: Path) -> Path:
    """Rename a file that cannot be used, so that its place is free; returns its new path."""
    taken = len(list(path.parent.glob(f"{path.name}.damaged-*")))
    return path.rename(path.with_name(f"{path.name}.damaged-{taken + 1}"))


@contextmanager
def whole(path: Path, durable: bool = False) -> Iterator[Path]:
    """A file to write in place of `path`: it becomes `path` when the block ends well, and is removed
    otherwise. Makes the folder. `durable`: the file has reached the disk before it is renamed, in
    case the machine fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield aside
        if durable:
            sync(aside)
        os.replace(aside, path)
        if durable:
            sync(path.parent)
    finally:
        if os.path.exists(aside):  # False, where Path.exists raises for a name that is too long
            aside.unlink()
