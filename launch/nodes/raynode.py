"""Ray's processes on this node, as children of ours.

Promises that they end with this process, however it ends: a keeper kills them by process id.
Refuses `ray stop`, which kills by name."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from actors.cluster import check_socket_room
from actors.keeper import keep
from ssp.base.errors import SspError

MARK = "SSP_NODE"
"""The variable in the environment of a node's processes that tells the keeper their folder. Ray's
agents overwrite theirs with their title, and are known by their session."""

READY = "Ray runtime started."

STARTS = 3
"""How often Ray is started, at most: on a busy machine a raylet gives up its agents after 15 s, and
waiting on is in vain."""

POLITE, LEAVING = 8.0, 45.0
"""Seconds that Ray gets to end by itself, and on a node that leaves a run: there a signal drains
it, and for 30 s its actors go on and nothing new starts."""


class RayNode:
    """`ray start` with `options`, and everything below it, ready."""

    def __init__(self, options: Sequence[str], seconds: float) -> None:
        """Start it, with a keeper. InputError when its folder's path is too long for sockets,
        SspError with Ray's last words when it is not ready within `seconds`."""
        self.folder = Path(tempfile.mkdtemp(prefix="ssp-", dir=os.environ.get("RAY_TMPDIR")))
        check_socket_room(self.folder)
        self._log = self.folder / "ray-start.log"
        for _ in range(STARTS):
            self._start(options)
            if self._ready(seconds / STARTS):
                return
            self.end(keep=True)
        raise SspError(f"Ray did not start: {self._last_words()}")

    def check(self) -> None:
        """SspError when Ray has ended by itself."""
        if self._process.poll() is not None:
            raise SspError(f"Ray on this node has ended: {self._last_words()}")

    def end(self, keep: bool, seconds: float = POLITE) -> None:
        """End it: Ray by a signal, which lets it say goodbye within `seconds`, then the keeper what
        is left. `keep`: its logs stay."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self._keeper.communicate()
        self._process.wait()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, options: Sequence[str]) -> None:
        environment = {**os.environ, MARK: str(self.folder)}
        environment.pop("RAY_ADDRESS", None)
        # The package that was compared with the head's is the one that actors import.
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
        # Workers' output stays in their logs (`actors.cluster`), so nobody reads what it would send.
        command += ["--include-log-monitor=false", "--disable-usage-stats"]
        command += [f"--temp-dir={self.folder}", *options]
        with self._log.open("wb") as log:
            # A session of its own: Ctrl-C is for us, and Ray ends after the run.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self._keeper = keep(self._process.pid, f"{MARK}={self.folder}")

    def _ready(self, seconds: float) -> bool:
        """Whether Ray runs within `seconds`."""
        deadline = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < deadline:
            if READY in self._log.read_text(errors="replace"):
                return True
            time.sleep(0.1)
        return False

    def _last_words(self) -> str:
        words = " ".join(self._log.read_text(errors="replace").split())
        return f"{words[-300:]} (all of it: {self._log})"
