"""Ray's own servers, seen from a process that uses them: one that ends, and a start that nobody
answers.

A call into Ray waits for minutes then, deaf to exceptions and to Ctrl-C, so this process is ended:
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
"""Server → what of its node's addresses stands in its command line."""


class ServerWatch:
    """A thread that ends this process once `look` finds something to say; `last` is called before,
    and adds what to do."""

    def __init__(self, look: Callable[[], str], last: Callable[[], str]) -> None:
        self._look, self._last, self._over = look, last, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="ray-servers")
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join(timeout=10.0)

    def _watch(self) -> None:
        while not self._over.wait(EVERY):
            if (found := self._look()) and not self._over.is_set():
                say(f"ssp: SspError: {found} {self._last()}", sys.stderr)
                os._exit(SspError.exit_code)


def starting(seconds: float, late: str) -> Callable[[], str]:
    """A look while Ray starts: at servers that this process starts from now on, and at the clock;
    `late` is what there is to say after `seconds`."""
    before, deadline, there = (
        set(psutil.Process().children()),
        time.monotonic() + seconds,
        dict[psutil.Process, str](),
    )

    def look() -> str:
        for child in set(psutil.Process().children()) - before - there.keys():
            with suppress(psutil.Error):
                # also of one that is dead already, until Ray asks how it ended
                if child.name() in MARKS:
                    there[child] = child.name()
        return _ended(there) or (late if time.monotonic() > deadline else "")

    return look


def playing(addresses: Mapping[str, Any]) -> Callable[[], str]:
    """A look at the servers of this machine that a connection rests on; `addresses`: Ray's, by its
    own names."""
    there = dict[psutil.Process, str]()
    for process in psutil.process_iter(["name", "cmdline"]):
        name, words = process.info["name"], process.info["cmdline"] or ()
        # The whole address: that of a second node on this machine has the first one's at its
        # beginning.
        if name in MARKS and any(
            word.partition("=")[2] == addresses[MARKS[name]] for word in words
        ):
            there[process] = name
    return lambda: _ended(there)


def _ended(there: Mapping[psutil.Process, str]) -> str:
    """Which of them is gone; "" while all live."""
    for process, name in there.items():
        with suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                continue
        return (
            f"Ray's {name} (process {process.pid}) has ended, and nothing here goes on without it."
        )
    return ""
