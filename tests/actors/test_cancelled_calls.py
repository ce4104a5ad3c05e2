"""Calls of a crew that are given up: whatever comes at that moment, the caller ends. No Ray is started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from works import Work

from actors.crew import Patience, RayCrew
from ssp.base.errors import Fault, SspError


def _crew(answer: Callable[[], Any], seconds: float = 10.0) -> RayCrew:
    asked = SimpleNamespace(remote=answer)
    two = SimpleNamespace(remote=lambda: ("block", answer()))
    handle = SimpleNamespace(ping=asked, ask=asked, play=SimpleNamespace(options=lambda **_: two))
    return RayCrew(Work, "solver", [handle], Patience(seconds, seconds), lambda text: None)


@pytest.mark.parametrize("method", ["ask", "play", "ping"])
@pytest.mark.parametrize("turns", [0, 1, 2])
def test_a_call_that_is_cancelled_as_its_answer_comes_is_cancelled(method: str, turns: int) -> None:
    """Else a task of a run that goes back to its checkpoint lives on, and waits for a round that nobody plays."""

    async def play() -> bool:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        crew = _crew(lambda: answer)
        crew.members[0].down = method == "ping"  # the call first waits until it is back

        async def lives_on() -> None:
            await getattr(crew[0], "ask" if method == "ping" else method)()
            await asyncio.Event().wait()

        task = asyncio.create_task(lives_on())
        for _ in range(5):
            await asyncio.sleep(0)
        answer.set_result(1)
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=5.0)
        ended = task.cancelled()
        task.cancel()
        return ended

    assert asyncio.run(play())


def test_a_call_without_an_answer_ends_and_so_does_the_wait_for_one_that_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed: list[bool] = []
    monkeypatch.setattr("actors.crew.ray.kill", lambda handle, no_restart: killed.append(no_restart))

    async def play() -> None:
        crew = _crew(asyncio.get_running_loop().create_future, 0.05)
        with pytest.raises(Fault, match="solver_deadline: ask took longer than 0.05 s"):
            await crew[0].ask()
        with pytest.raises(SspError, match="solver-0 did not come back within 0.05 s"):
            await crew[0].ask()

    asyncio.run(play())
    assert killed == [False]


def test_an_actor_that_answers_one_call_after_the_other_is_not_taken_for_one_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Blocks of several rounds wait in line at one player; the deadline is of a block, not of the line."""
    killed: list[bool] = []
    monkeypatch.setattr("actors.crew.ray.kill", lambda handle, no_restart: killed.append(no_restart))

    async def play() -> None:
        answers: list[asyncio.Future[int]] = []

        def asked() -> asyncio.Future[int]:
            answers.append(asyncio.get_running_loop().create_future())
            return answers[-1]

        crew = _crew(asked, 1.5)
        line = [asyncio.create_task(crew[0].ask()) for _ in range(4)]
        for i in range(3):  # all three together take longer than one may
            await asyncio.sleep(0.6)
            answers[i].set_result(i)
        assert await asyncio.gather(*line[:3]) == [0, 1, 2]
        with pytest.raises(Fault, match="solver_deadline"):
            await line[3]

    asyncio.run(play())
    assert killed == [False]
