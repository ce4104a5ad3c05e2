"""Who waits for whom: told once when nothing moves, and at the signal; nothing is ended by it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from actors.calls import Calls
from actors.watch.stall import QUIET, Stall
from ssp.selfplay.report import Report


class Sink:
    """Takes what a report says."""

    def span(self, *args: Any) -> None:
        pass


class Program:
    """As much of a program as the table needs."""

    def __init__(self) -> None:
        self.calls = Calls()

    @property
    def finished(self) -> int:
        return self.calls.finished

    def under_way(self) -> list[Any]:
        return self.calls.under_way()


def _made(tmp_path: Path, seconds: float) -> tuple[Stall, Program, Report, list[str]]:
    program, said = Program(), list[str]()
    report = Report(Sink(), None, 1, ["solver"])  # type: ignore[arg-type]
    stall = Stall(seconds, program, report, tmp_path / "waits.txt", said.append)  # type: ignore[arg-type]
    return stall, program, report, said


def test_a_stall_is_told_once_until_something_moves(tmp_path: Path) -> None:
    stall, program, report, said = _made(tmp_path, 0.2)

    async def play() -> None:
        watch = asyncio.create_task(stall.watch())
        with report.waiting("learner-solver-0", "batch"), program.calls.of("solver-1", "play"):
            await asyncio.sleep(0.7)
        assert len(said) == 1
        await asyncio.sleep(0.5)  # the call was answered, and then nothing
        assert len(said) == 2 and said[1].endswith(QUIET)
        watch.cancel()

    asyncio.run(play())
    first, *rows = said[0].splitlines()
    assert "no call was answered for" in first and "goes on waiting" in first
    assert [" ".join(row.split()[:-2]) for row in rows] == [
        "learner-solver-0 waits for batch",
        "driver, solver-1 waits for answer to play",
    ]
    assert (tmp_path / "waits.txt").read_text().count("who waits for whom") == 2
    assert report.waits == {}


def test_calls_that_are_answered_are_no_stall(tmp_path: Path) -> None:
    stall, program, _, said = _made(tmp_path, 0.4)

    async def play() -> None:
        watch = asyncio.create_task(stall.watch())
        for _ in range(10):
            with program.calls.of("solver-0", "play"):
                await asyncio.sleep(0.1)
        watch.cancel()

    asyncio.run(play())
    assert said == []


def test_the_signal_asks_for_the_table(tmp_path: Path) -> None:
    stall, _, report, said = _made(tmp_path, 0.0)

    async def play() -> None:
        watch = asyncio.create_task(stall.watch())
        await asyncio.sleep(0.05)
        with report.waiting("round-0", "solver's learner"):
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.sleep(0.1)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    asyncio.run(play())
    assert len(said) == 1 and "asked by SIGUSR1" in said[0] and "round-0  waits for solver's learner" in said[0]
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_lost_calls_are_what_a_death_report_tells(tmp_path: Path) -> None:
    calls = Calls()
    with calls.of("solver-0", "play") as asked:
        calls.lose(asked, "it hung")
    with calls.of("solver-0", "ping"):
        pass
    lost = calls.at_death("solver-0")
    assert lost is asked and lost.lost == "it hung" and "for 0.0 s" in lost.told()
    again = calls.at_death("solver-0")
    assert again is not None and again.method == "ping" and "over after" in again.told()
    assert calls.at_death("solver-1") is None and calls.under_way() == []
