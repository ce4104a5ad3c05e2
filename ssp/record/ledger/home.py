"""Where a run's ledger lies: in the run folder, or, where that is on a network (SQLite's
write-ahead log needs one machine), on a local disk with copies in the run folder. The run folder's
file is always a whole ledger that contains the newest checkpoint, and no number is ever given out
twice."""

import hashlib
import os
import secrets
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from ssp.base.errors import hold
from ssp.base.files import whole
from ssp.record.ledger.book import Ledger

NETWORK = "nfs nfs4 cifs smb3 smbfs lustre gpfs beegfs ceph afs 9p virtiofs ocfs2 gfs2 glusterfs pvfs2".split()
"""Types of file systems that several machines share; of FUSE, all but those of a disk."""

SKIPPED = 1_000_000
"""Numbers left out of each count (starts, versions) when a run goes on from a copy: more than were
given out since it."""


def file_system(path: Path) -> str:
    """The type of the file system that `path` lies on, made or not; "" where none is known."""
    import psutil  # a slow import

    place = path.resolve()
    kind, longest = "", -1
    for part in psutil.disk_partitions(all=True):
        # The innermost one counts, and of several there the last.
        if place.is_relative_to(part.mountpoint) and len(part.mountpoint) >= longest:
            kind, longest = part.fstype, len(part.mountpoint)
    return kind


def shared(kind: str) -> bool:
    """Whether a file system of this type is on a network."""
    return kind in NETWORK or (kind.startswith("fuse") and kind != "fuseblk")


def written_at(target: Path) -> Path:
    """The file that is written for the ledger `target`: itself, or one on a local disk; InputError
    without such a disk."""
    if not shared(file_system(target)):
        return target
    base = Path(tempfile.gettempdir())
    kind = file_system(base)
    rule = (
        "a ledger is written on a local disk, which the temporary folder is where the run"
        " folder is not"
    )
    step = "set TMPDIR to a folder on a disk of this machine"
    hold(not shared(kind), rule, f"{base} on {kind}", step)
    path = target.absolute()
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return base / f"ssp-ledger-{os.getuid()}" / f"{path.parent.name}-{name}" / target.name


class HomeLedger(Ledger):
    """The ledger of a run folder. `target`: its ledger.db."""

    def __init__(self, target: str | Path) -> None:
        self._target = Path(target)
        file = written_at(self._target)
        elsewhere = file != self._target
        fetched = elsewhere and _fetched(file, self._target)
        super().__init__(file)
        if fetched:
            self._db.execute(f"PRAGMA application_id = {secrets.randbits(31)}")
            with self._transaction() as db:
                # The copy may lack versions that were given out after it was made: skip their
                # numbers. 'run' counts starts, and a copy of before the first start has no row of it.
                db.execute(
                    f"INSERT INTO versions SELECT role, max(version) + {SKIPPED}, NULL, NULL, 0"
                    " FROM (SELECT role, version FROM versions UNION SELECT 'run', 0) GROUP BY role"
                )
        if elsewhere:
            self.keep()

    def keep(self) -> None:
        """Have everything that was written until now in the run folder: a checkpoint is about to
        name it."""
        if self.path == self._target:
            # and on the disk, as state.json is: the log beside it may be lost with the machine
            with self._lock:
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            return
        with self._lock:
            self._db.execute(f"PRAGMA user_version = {_copies(self.path)[1] + 1}")
            super().fold()
            with whole(self._target, durable=True) as aside:
                shutil.copyfile(self.path, aside)
            self._db.execute("PRAGMA journal_mode=WAL")

    def fold(self) -> None:
        """At a run's end: all of it is in the run folder's file."""
        super().fold()
        self.keep()

    def where(self) -> str:
        """What a user is told about the place; "" when the run folder's file itself is written."""
        if self.path == self._target:
            return ""
        kind = file_system(self._target)
        return (
            f"the run folder is on {kind}: its ledger is written at {self.path} and copied at each"
            " checkpoint"
        )


def _fetched(file: Path, target: Path) -> bool:
    """Make `file` ready to be written for `target`. Returns whether it was copied from there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # of a writer that was killed
    for left in target.parent.glob(f".{target.name}.*.part"):
        left.unlink(missing_ok=True)
    if target.is_file():
        (mine, count), (theirs, newest) = _copies(file), _copies(target)
        if mine == theirs and count >= newest:
            return False
    # Another machine went on (two may have, from one copy), this disk was emptied, or a run of this
    # name was deleted.
    for left in file.parent.glob(f"*{file.name}*"):
        left.unlink()
    if not target.is_file():
        return False
    with whole(file) as aside:
        shutil.copyfile(target, aside)
    return True


def _copies(file: Path) -> tuple[int, int]:
    """The number that was drawn when a run went on from a copy, and how many copies were made until
    this file; -1 without a file."""
    if not file.is_file():
        return 0, -1
    uri = f"{file.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=10.0)) as db:
        (branch,) = db.execute("PRAGMA application_id").fetchone()
        (count,) = db.execute("PRAGMA user_version").fetchone()
    return int(branch), int(count)
