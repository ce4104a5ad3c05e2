"""Where a run's ledger lies: in the run folder, or on a local disk with copies in the run folder.

Owns that choice. SQLite's write-ahead log needs one machine's memory and locks, which a network file system does not
give: there the ledger is written on a local disk, and `keep` copies it into the run folder before a checkpoint names
what is in it. Promises that the run folder's file is always a whole ledger that contains the newest checkpoint, and that
numbers given out after the copy that a run goes on from are never given again. Refuses a temporary folder that is itself
on the network.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

from ssp.errors import InputError
from ssp.ledger.book import Ledger

NETWORK = frozenset("nfs nfs4 cifs smb3 smbfs lustre gpfs beegfs ceph afs 9p virtiofs ocfs2 gfs2".split())
"""Types of file systems that several machines share; of FUSE, all but those of a disk."""

MOUNTS = Path("/proc/self/mountinfo")

JOURNAL = 18
"""Where in an SQLite file the kind of its journal stands, for writers and readers: 2 is a write-ahead log, 1 is none."""

SKIPPED = 1_000_000
"""Numbers left out of each count (starts, versions) when a run goes on from a copy: more than were given out since it."""


def file_system(path: Path) -> str:
    """The type of the file system that `path`, which need not exist yet, lies on, by the kernel's list of mounts; "" where
    there is no such list."""
    if not MOUNTS.is_file():
        return ""
    place, best, found = path.resolve(), -1, ""
    for line in MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
        before, after = line.split(" - ", 1)
        point = Path(before.split()[4].encode().decode("unicode_escape"))
        if place.is_relative_to(point) and len(point.parts) >= best:
            best, found = len(point.parts), after.split()[0]
    return found


def shared(kind: str) -> bool:
    """Whether a file system of this type is on a network."""
    return kind in NETWORK or (kind.startswith("fuse") and kind != "fuseblk")


def written_at(target: Path) -> Path:
    """The file that is written for the ledger `target` of a run folder: itself, or one on a local disk. InputError when the
    temporary folder is no such disk."""
    if not shared(file_system(target)):
        return target
    base = Path(tempfile.gettempdir())
    if shared(kind := file_system(base)):
        rule = "a ledger is written on a local disk, which the temporary folder is where the run folder is not"
        raise InputError(rule, f"{base} on {kind}", "set TMPDIR to a folder on a disk of this machine")
    name = hashlib.sha256(os.fsencode(target.absolute())).hexdigest()[:16]
    return base / f"ssp-ledger-{os.getuid()}" / f"{target.absolute().parent.name}-{name}" / target.name


class HomeLedger(Ledger):
    """The ledger of a run folder. `target`: its ledger.db."""

    def __init__(self, target: str | Path) -> None:
        self._target = Path(target)
        file = written_at(self._target)
        copied = file != self._target
        if copied:
            file.parent.mkdir(parents=True, exist_ok=True)
        fetched = copied and self._target.is_file() and _copies(file) < _copies(self._target)
        if fetched:  # another machine went on, or this disk was emptied
            for left in file.parent.glob(f"{file.name}*"):
                left.unlink()
            shutil.copyfile(self._target, file)
        super().__init__(file)
        if fetched:
            with self._transaction() as db:
                known = "SELECT role, version FROM versions UNION SELECT 'run', 0"  # every start takes one of these
                skipped = f"SELECT role, max(version) + {SKIPPED}, NULL, NULL, 0 FROM ({known}) GROUP BY role"
                db.execute(f"INSERT INTO versions {skipped}")
        if copied:
            self.keep()

    def keep(self) -> None:
        """Have everything that was written until now in the run folder: a checkpoint is about to name it."""
        if self.path == self._target:
            return
        with self._lock:
            self._db.execute(f"PRAGMA user_version = {_copies(self.path) + 1}")
            self.fold()
            aside = self._target.with_name(f".{self._target.name}.tmp")
            shutil.copyfile(self.path, aside)
            with aside.open("r+b") as file:
                file.seek(JOURNAL)
                file.write(b"\x01\x01")  # who reads the copy needs no write-ahead log
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, self._target)

    def where(self) -> str:
        """What a user is told about the place; "" when the run folder's file itself is written."""
        if self.path == self._target:
            return ""
        kind = file_system(self._target)
        return f"the run folder is on {kind}: its ledger is written at {self.path} and copied at each checkpoint"


def _copies(file: Path) -> int:
    """How many copies were made of a ledger until it was this; -1 without a file."""
    if not file.is_file():
        return -1
    db = sqlite3.connect(f"file:{file.absolute()}?mode=ro", uri=True, timeout=10.0)
    try:
        return int(db.execute("PRAGMA user_version").fetchone()[0])
    finally:
        db.close()
