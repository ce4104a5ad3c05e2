"""How a ledger's file is opened: to write, or for looking only."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ssp.base.errors import InputError
from ssp.record.ledger.rows import SCHEMA

_PLACE = ("SQLITE_PERM", "SQLITE_BUSY", "SQLITE_READONLY", "SQLITE_IOERR", "SQLITE_CANTOPEN")
"""How SQLite's errors begin that are of the place where the file lies, and not of what is in it."""


def still(path: Path) -> tuple[int, ...] | None:
    """By what a file that nobody writes is known again (a missing one: nothing); None where a writer's log is beside it.
    An empty log says nothing: one who looked at a run may have left it."""
    try:
        if path.with_name(f"{path.name}-wal").stat().st_size:
            return None
    except FileNotFoundError:
        pass
    try:
        status = path.stat()
    except FileNotFoundError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_size


def opened(path: Path, readonly: bool) -> sqlite3.Connection:
    """The checked file. InputError for one that is missing (`readonly`), cannot be opened, or is no ledger."""
    if readonly and not path.is_file():
        raise InputError("a ledger file must exist", path, "give the path of a run's ledger.db")
    mode = "rwc" if not readonly else "ro" if still(path) is None else "ro&immutable=1"
    db: sqlite3.Connection | None = None
    try:
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10.0)
        db.row_factory = sqlite3.Row
        if readonly:
            db.execute("SELECT count(*) FROM counters").fetchone()
            ((verdict,), *_) = db.execute("PRAGMA quick_check").fetchall()
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
        else:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.executescript(SCHEMA)
        db.execute(
            "SELECT round FROM episodes"
        ).fetchone()  # OperationalError: an earlier form, which nothing here reads
    except sqlite3.DatabaseError as error:
        if db is not None:
            db.close()
        if getattr(error, "sqlite_errorname", "").startswith(_PLACE):
            rule = "a ledger can be opened where it lies; beside one that was not closed SQLite writes, also to read it"
            raise InputError(rule, f"{path} ({error})", "copy the run's folder to where you may write") from error
        raise InputError(
            "a ledger file must be this project's SQLite", f"{path} ({error})", "use another file"
        ) from error
    return db
