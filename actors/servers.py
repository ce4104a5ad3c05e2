"""Ray's own servers, watched from a process that uses them: for one that ends, and for a start that
nobody answers.

A call into Ray then waits for minutes, deaf to exceptions and to Ctrl-C. So this process is ended:
one paragraph within seconds, exit code 1. Looks at processes of this machine and asks nobody."""

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import psutil

from ssp.base.errors import SspError
from ssp.base.printable import say

EVERY = 0.2
"""Seconds between two looks."""

MARKS = {"gcs_server": "session_dir", "raylet": "raylet_socket_name"}
"""Server → which of its node's addresses stands in its command line."""


class ServerWatch:
    """A thread that ends this process once `look` returns something to say. `last` is called before
    that, and adds what to do."""

    def __init__(self, look: Callable[[], str], last: Callable[[], str]) -> None:
        self._look = look
        self._last = last
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="ray-servers")
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join(timeout=10.0)

    def _watch(self) -> None:
        while not self._over.wait(EVERY):
            trouble = self._look()
            if trouble and not self._over.is_set():
                say(f"ssp: SspError: {trouble} {self._last()}", sys.stderr)
                os._exit(SspError.exit_code)


def starting(seconds: float, late: str) -> Callable[[], str]:
    """A look for the time in which Ray starts: at servers that this process starts from now on, and
    at the clock. `late` is what it says after `seconds`."""
    before = set(psutil.Process().children())
    deadline = time.monotonic() + seconds
    there: dict[psutil.Process, str] = {}

    def look() -> str:
        for child in set(psutil.Process().children()) - before - there.keys():
            with suppress(psutil.Error):
                # also of one that is dead already, until Ray asks how it ended
                if child.name() in MARKS:
                    there[child] = child.name()
        return _ended(there) or (late if time.monotonic() > deadline else "")

    return look


def playing(addresses: Mapping[str, Any]) -> Callable[[], str]:
    """A look at the servers of this machine that a connection rests on. `addresses`: Ray's, by its
    own names."""
    there: dict[psutil.Process, str] = {}
    for process in psutil.process_iter(["name", "cmdline"]):
        name = process.info["name"]
        words = process.info["cmdline"] or ()
        if name in MARKS:
            # The whole address: that of a second node on this machine may begin with the first
            # one's.
            values = {word.partition("=")[2] for word in words}
            if addresses[MARKS[name]] in values:
                there[process] = name
    return lambda: _ended(there)


def _ended(there: Mapping[psutil.Process, str]) -> str:
    """Which of these servers is gone; "" while all live."""
    for process, name in there.items():
        with suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                continue
        server = f"Ray's {name} (process {process.pid})"
        return f"{server} has ended, and nothing here goes on without it."
    return ""
