"""Ray's processes on this node, as children of ours.

Owns their start, their folder and their end. Promises that they end with this process, however it
ends (a keeper kills them by process id), and that what an earlier command left is cleared away at
the next start: each process carries its launcher's mark in its environment, and a launcher that is
gone owns nothing. Refuses `ray stop`, which kills by name."""

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from actors.cluster import check_socket_room
from actors.keeper import keep
from ssp.base.errors import SspError

MARK = "SSP_NODE"
"""In the environment of each process of a node: `<process id>-<start time>` of the launcher. Ray's
agents overwrite theirs with their title, so what belongs to a living launcher is known by its
session too."""

READY = "Ray runtime started."
STARTS = 3
"""How often Ray is started before its failure counts."""

POLITE, LEAVING, DEAD = 8.0, 45.0, 10.0
"""Seconds that Ray gets to end by itself; that it gets on a node which leaves a run (a signal
drains it: for 30 s its actors go on and nothing new comes, then they start again elsewhere); and
that killed processes get to be gone."""


def own_mark() -> str:
    """The mark of what this process starts."""
    return f"{os.getpid()}-{_started(os.getpid())}"


def left_behind() -> list[tuple[psutil.Process, str]]:
    """Processes of this user that carry the mark of a launcher which is gone, with that mark."""
    here, found = os.readlink("/proc/self/ns/pid"), []
    for process in psutil.process_iter():
        # Another container's processes may be seen from here, and their launcher has another number
        # there.
        with suppress(psutil.Error, OSError):
            mark = process.environ().get(MARK, "")
            same = os.readlink(f"/proc/{process.pid}/ns/pid") == here
            if mark and same and not alive(mark) and process.status() != psutil.STATUS_ZOMBIE:
                found.append((process, mark))
    return found


def sweep() -> list[str]:
    """End what launchers that are gone have left on this machine, remove their folders, and say
    what was ended."""
    processes = left_behind()
    for process, _ in processes:
        # it refuses a number that was given to another process meanwhile
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs([process for process, _ in processes], DEAD)
    for folder in stale_folders():
        shutil.rmtree(folder, ignore_errors=True)
    return [
        f"process {each.pid} of a run whose launcher {mark.split('-')[0]} is gone"
        for each, mark in processes
    ]


def stale_folders() -> list[Path]:
    """Folders of launchers that are gone."""
    return [folder for folder in root().glob("*-*") if not alive(folder.name)]


def alive(mark: str) -> bool:
    """Whether the launcher of that mark still runs."""
    pid, _, started = mark.partition("-")
    return pid.isdigit() and _started(int(pid)) == started


def root() -> Path:
    """Where the folders of nodes lie: on this machine's own disk, short, one for each user, machine
    and container."""
    whose = f"{os.getuid()} {socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    name = hashlib.sha256(whose.encode()).hexdigest()[:8]
    return Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / f"ssp-{name}"


def _started(pid: int) -> str:
    """When a process started, in clock ticks after the boot; empty when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat[stat.rindex(")") + 2 :].split()[19]


class RayNode:
    """`ray start` with `options`, and everything below it."""

    def __init__(self, options: Sequence[str]) -> None:
        """Start it, with a keeper. InputError when its folder's path is too long for sockets."""
        self.mark = own_mark()
        self.folder = root() / self.mark
        check_socket_room(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / "ray-start.log"
        self._options = list(options)
        self._launch()

    def _launch(self) -> None:
        # The package that was compared with the head's is the one that actors import.
        package = str(Path(__file__).parents[2])
        paths = [package, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        environment = {
            **os.environ,
            MARK: self.mark,
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        }
        environment.pop("RAY_ADDRESS", None)
        command = [
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "start",
            "--block",
            "--disable-usage-stats",
        ]
        with self.log.open("wb") as log:
            # A session of its own: Ctrl-C is for us, and Ray ends after the run.
            self.process = subprocess.Popen(
                [*command, f"--temp-dir={self.folder}", *self._options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True,
            )  # fmt: skip
        self._keeper = keep(self.process.pid, f"{MARK}={self.mark}")

    def ready(self, seconds: float) -> None:
        """Wait until Ray says that it runs. SspError with its last words when it does not within
        `seconds`."""
        deadline, starts = time.monotonic() + seconds, 1
        while READY not in self.log.read_text(errors="replace"):
            if starts < STARTS and self._stillborn():
                starts += 1
                self._kill()
                self._launch()
            self.check()
            if time.monotonic() > deadline:
                raise SspError(
                    f"Ray did not start within placement.call_timeout={seconds:g} s:"
                    f" {self._last_words()}"
                )
            time.sleep(0.1)

    def check(self) -> None:
        """SspError when Ray has ended by itself."""
        if self.process.poll() is not None:
            raise SspError(f"Ray on this node has ended: {self._last_words()}")

    def end(self, keep: bool, seconds: float = POLITE) -> None:
        """End it: Ray by a signal, which lets it say goodbye within `seconds`, then the keeper what
        is left. `keep`: its logs stay until the next start."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self._kill()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _kill(self) -> None:
        """Have the keeper end what is left of this node."""
        self._keeper.communicate()
        self.process.wait()

    def _stillborn(self) -> bool:
        """Whether a server died while `ray start` still waits for it: a raylet gives its own agents
        15 s to come up, which a busy machine does not always keep."""
        with suppress(psutil.Error):
            return any(
                child.status() == psutil.STATUS_ZOMBIE
                for child in psutil.Process(self.process.pid).children()
            )
        return False

    def _last_words(self) -> str:
        lines = [
            line.strip()
            for line in self.log.read_text(errors="replace").splitlines()
            if line.strip()
        ]
        return f"{' / '.join(lines[-3:])} (all of it: {self.log})"
