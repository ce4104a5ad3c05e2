"""What was appended to a file of a run since one last looked."""

from __future__ import annotations

import os
from pathlib import Path

HEAD = 65_536
"""Bytes at the beginning of a long file that are read all the same: a timeline names its tracks there."""


class Tail:
    """Reads `path` in parts. `most`: of a file that is longer at the first look, the last so many bytes."""

    def __init__(self, path: Path, most: int | None = None) -> None:
        self._path, self._most = path, most
        self._file, self._at = -1, 0

    def lines(self) -> list[str]:
        """The lines since the last call; none when there is no file yet."""
        if not self._path.is_file():
            return []
        with self._path.open("rb") as file:
            status = os.fstat(file.fileno())
            # A run that goes on takes the closing bracket of its timeline away.
            self._at = min(self._at, status.st_size) if status.st_ino == self._file else 0
            head = b""
            if self._at == 0 and self._most is not None and status.st_size > self._most + HEAD:
                head = file.read(HEAD)
                head = head[: head.rfind(b"\n") + 1]
                file.seek(status.st_size - self._most)
                file.readline()
                self._at = file.tell()
            file.seek(self._at)
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        self._file, self._at = status.st_ino, self._at + len(data)
        return (head + data).decode("utf-8", "replace").split("\n")[:-1]
