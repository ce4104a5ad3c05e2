"""Where a run only reports: a full disk, a server that hangs or a stopped terminal ends there, and
not in the run."""

import queue
import threading
from collections.abc import Callable

WAITING = 1000
"""Jobs that may wait for one outlet; what comes then is dropped."""

PATIENCE = 1.0
"""Seconds for which who gives a job waits for its end, where it waits at all."""


class Outlet:
    """One place that is told something: it does its jobs in order, on a thread of its own.

    The first job that fails is said by `say`, once, and no later one is done.
    Jobs that it has no room for are dropped, and that is said once too."""

    def __init__(self, name: str, say: Callable[[str], object]) -> None:
        self._name = name
        self._say = say
        self._jobs = queue.Queue[Callable[[], object] | threading.Event](WAITING)
        self._reached = threading.Event()
        self._reached.set()
        self._left = self._dropped = False
        threading.Thread(target=self._work, daemon=True, name=f"outlet {name}").start()

    def do(self, job: Callable[[], object], wait: float = 0.0) -> None:
        """Have a job done. Wait for its end for `wait` seconds, unless one that was waited for
        before is not over."""
        if self._left or not self._put(job):
            return
        if wait > 0.0 and self._reached.is_set():
            mark = threading.Event()
            if self._put(mark):
                self._reached = mark
                mark.wait(wait)

    def _put(self, job: Callable[[], object] | threading.Event) -> bool:
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            if not self._dropped:
                self._dropped = True
                self._say(f"{self._name} does not keep up: what it has no room for is dropped")
            return False
        return True

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if isinstance(job, threading.Event):
                job.set()
            elif not self._left:
                try:
                    job()
                except Exception as error:  # noqa: BLE001 (whatever it is, the run goes on)
                    self._left = True
                    gone = f"no {self._name} any more, and the run goes on"
                    self._say(f"{gone}: {error or repr(error)}")
