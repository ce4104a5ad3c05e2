"""What Ray says of a node whose memory ran out: a line for a person, and a death like any other for the game."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from ray.exceptions import OutOfMemoryError
from works import Work

from actors.crew import Patience, RayCrew, last_line
from ssp.base.errors import Fault

USERS = "".join(f"{pid}\t{9.0 - pid:.2f}\tray::solver-{pid}.play --with-words {'x ' * 1200}\n" for pid in range(1, 9))
REPORT = (
    "1 worker(s) were killed due to the node running low on memory. Memory on the node (IP: 127.0.0.1, ID: ce59) was "
    "22.41GB used / 23.54GB limit (0.952)\nOOM kill reason: Memory usage 1B exceeded threshold of 1B (95.0% of 1B limit)\n"
    f"Eviction Stats:\n(global lru) used: 0%\nTop 10 memory users: PID\tMEM(GB)\tCOMMAND\n{USERS}"
    "Refer to the documentation on how to address the out of memory issue: https://docs.ray.io/en/latest/x.html."
)


def test_a_report_of_pages_is_a_line() -> None:
    assert last_line(OutOfMemoryError(REPORT)) == "the node's memory ran out: 22.41 of 23.54 GB used"


class Handle:
    """An actor that every call ends for want of memory, as Ray says it."""

    def __init__(self) -> None:
        self.play = SimpleNamespace(options=lambda **how: SimpleNamespace(remote=lambda *args: (None, self._ended())))

    async def _ended(self) -> None:
        raise OutOfMemoryError(REPORT)


def test_a_call_that_lack_of_memory_ended_is_a_death() -> None:
    said: list[str] = []
    crew = RayCrew(Work, "solver", [Handle()], Patience(5, 5), said.append)
    with pytest.raises(Fault) as caught:
        asyncio.run(crew[0].play())
    assert caught.value.cause == "solver_died" and said == ["solver-0 died: its process ended during play"]
