"""Who waits for whom: said once when nothing moves, and whenever the process gets SIGUSR1.

Owns the word "stall": no call to a player, judge, learner or ledger was answered for telemetry.stall seconds. Promises to
tell and nothing more: a slow run is not ended by it. Refuses to ask an actor anything: who hangs would not answer.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path

from actors.program import Program
from ssp.selfplay.report import Report

LOOKS = 4
"""Looks in the time that makes a stall."""

QUIET = "nothing: no call is under way, and nobody waits"


class Stall:
    """The look at one run. `file`: where tables are kept, the newest last."""

    def __init__(
        self, seconds: float, program: Program, report: Report, file: Path, say: Callable[[str], None]
    ) -> None:
        self._seconds, self._program, self._report = seconds, program, report
        self._file, self._say = file, say

    async def watch(self) -> None:
        """Look until cancelled; without a number of seconds, only at the signal."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, lambda: self.tell("asked by SIGUSR1"))
        try:
            await self._look() if self._seconds else await asyncio.Event().wait()
        finally:
            loop.remove_signal_handler(signal.SIGUSR1)

    def tell(self, why: str) -> None:
        """Print the table, and keep it."""
        text = f"who waits for whom ({why}):\n{self.table()}"
        self._say(text)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC, {text}\n\n")

    def table(self) -> str:
        """One line for each that waits, the longest first: stages, learners and queues, then calls to actors."""
        now, wall = time.perf_counter(), time.time()
        waits = [(who, why, now - since) for who, (why, since) in self._report.waits.items()]
        calls = [(f"driver, {c.actor}", f"answer to {c.method}", wall - c.since) for c in self._program.under_way()]
        rows = [*sorted(waits, key=lambda row: -row[2]), *sorted(calls, key=lambda row: -row[2])]
        if not rows:
            return QUIET
        first, second = (max(len(names[i]) for names in ((who, why) for who, why, _ in rows)) for i in (0, 1))
        return "\n".join(f"  {who:<{first}}  waits for {why:<{second}}  {s:8.1f} s" for who, why, s in rows)

    async def _look(self) -> None:
        count, moved, told = self._program.finished, time.monotonic(), False
        while True:
            await asyncio.sleep(self._seconds / LOOKS)
            if self._program.finished != count:
                count, moved, told = self._program.finished, time.monotonic(), False
            elif not told and time.monotonic() - moved >= self._seconds:
                self.tell(f"no call was answered for {time.monotonic() - moved:.0f} s; the run goes on waiting")
                told = True
