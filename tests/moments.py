"""Moments of a run at which to kill its driver, seen from outside: in its ledger and among its checkpoints.

Owns what each moment looks like. Promises that a process dies at the moment that was asked for: it is stopped first, and killed
only when the moment is still there then; else it goes on. Needs no word of the program's. Refuses to kill by name.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trainruns import Left, Run, until

from ssp.base.episode import ROLES

NOW = "(SELECT max(version) FROM versions WHERE role = 'run')"
"""The incarnation that plays."""
TAKEN = f"""SELECT 1 FROM versions v WHERE v.incarnation = {NOW} AND v.step IS NOT NULL AND v.role IN ('proposer', 'solver')
  AND v.step > (SELECT coalesce(max(step), 0) FROM commits c WHERE c.role = v.role AND NOT c.rolled_back)
  AND NOT EXISTS (SELECT 1 FROM commits c WHERE (c.role, c.incarnation, c.step) = (v.role, v.incarnation, v.step))"""
"""An update is published, and its commit is not there."""
COMMITTED = f"SELECT role, step, version FROM commits WHERE NOT rolled_back AND incarnation = {NOW}"
PAUSE = 0.03
"""Seconds for what a stopped process has already asked of others."""

Moment = Callable[[Left], "list[int] | None"]
"""None while it is not that moment; else the processes that die with the driver."""


def updated(made: Left) -> list[int] | None:
    """Between an optimizer step and its commit."""
    return [] if made.sql(TAKEN) else None


def committed(made: Left) -> list[int] | None:
    """Between the commit of a step that is saved and the first file of its checkpoint."""
    return [] if any(not _half(folder) and not folder.exists() for _, folder in _due(made)) else None


def saving(made: Left) -> list[int] | None:
    """While a learner writes its checkpoint aside; that learner dies too."""
    roles = made.folder / "checkpoints"
    half = [name for role in ROLES for name in _asides(roles / role)]
    return [pid for pid in (int(name.rpartition("-")[2]) for name in half) if Path(f"/proc/{pid}").exists()] or None


def renamed(made: Left) -> list[int] | None:
    """Between the renaming of a step's last checkpoint and the state.json that names it."""
    steps = [step for step, folder in _due(made) if folder.exists()]
    return [] if len(steps) > len(set(steps)) else None


MOMENTS: dict[str, Moment] = {
    "optimizer step / commit": updated,
    "commit / save": committed,
    "in a save": saving,
    "rename / state.json": renamed,
}


def kill_at(made: Run, moment: Moment, seconds: float) -> bool:
    """Kill the driver, and who dies with it, at the next such moment; False when none was met in time."""
    deadline, driver = time.monotonic() + seconds, made.process.pid
    while time.monotonic() < deadline and made.process.poll() is None:
        others = moment(made)
        if others is None:
            if moment is not saving:  # which lasts a fraction of a millisecond where there is no model to write
                time.sleep(0.001)
            continue
        stopped = [pid for pid in (*others, driver) if _stopped(pid)]
        time.sleep(PAUSE)
        there = moment(made) is not None and len(stopped) == 1 + len(others)
        for pid in stopped:
            os.kill(pid, signal.SIGKILL if there else signal.SIGCONT)
        if there:
            made.wait()
            return True
    return False


def _due(made: Left) -> list[tuple[int, Path]]:
    """(step, folder) of the commits that wait for their checkpoint to be named."""
    every, saved = _every(made), made.saved()
    found = [row for row in made.sql(COMMITTED) if row[1] > saved and row[1] % every == 0]
    return [(step, made.folder / "checkpoints" / role / f"v{version}") for role, step, version in found]


def _every(made: Left) -> int:
    """`save.every` of a run."""
    lines = (made.folder / "config.yaml").read_text(encoding="utf-8").split("\nsave:\n")[1]
    return int(lines.split("every:")[1].split()[0])


def _half(folder: Path) -> list[str]:
    return [name for name in _asides(folder.parent) if name.startswith(f"{folder.name}.")]


def _asides(folder: Path) -> list[str]:
    """Checkpoints that are being written there: vN.tmp-PID."""
    return [name for name in os.listdir(folder) if ".tmp-" in name] if folder.is_dir() else []


def _stopped(pid: int) -> bool:
    """Stop a process; False when it is gone."""

    def state() -> str:
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat[stat.rindex(")") + 2]

    with suppress(ProcessLookupError, FileNotFoundError):
        os.kill(pid, signal.SIGSTOP)
        return until("a process stops", lambda: state() in "TtZX", 10.0, every=0.001) and state() in "Tt"
    return False
