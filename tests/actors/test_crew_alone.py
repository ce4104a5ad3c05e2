"""What a crew and a cluster decide without Ray: whose fault an exception is, when a call ends, and what may not start."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ObjectLostError, OutOfMemoryError, RayTaskError
from works import Work

from actors import cluster
from actors.crew import Patience, RayCrew, last_line
from ssp.base.errors import Fault, SspError
from ssp.config.cluster import RayConfig

SHORT = OutOfMemoryError(
    "Memory on the node (IP: 127.0.0.1) was 22.41GB used / 23.54GB limit (0.952)\nTop 10 users: ..."
)


def crew_of(answer: Callable[[], Any], seconds: float = 10.0, say: Callable[[str], None] = print) -> RayCrew:
    """A crew of one actor, whose every call ends as `answer` does."""
    asked = SimpleNamespace(remote=answer)
    two = SimpleNamespace(remote=lambda: ("block", answer()))
    handle = SimpleNamespace(ping=asked, ask=asked, play=SimpleNamespace(options=lambda **_: two))
    return RayCrew(Work, "solver", [handle], Patience(seconds, seconds), say)


def call(raised: Exception, say: Callable[[str], None] = print) -> Any:
    """Call an actor of which Ray says this."""

    async def answer() -> None:
        raise raised

    return asyncio.run(crew_of(answer, say=say)[0].ask())


@pytest.mark.parametrize("raised", [TimeoutError("a socket's"), ValueError("a bug"), Fault("engine_died")])
def test_an_exception_of_the_workers_own_code_is_raised_as_it_was(raised: Exception) -> None:
    with pytest.raises(type(raised)) as found:
        call(RayTaskError("work", "traceback", raised).as_instanceof_cause())
    assert found.value is raised


def test_a_lost_payload_is_a_fault() -> None:
    with pytest.raises(Fault, match="payload_lost"):
        call(ObjectLostError("00", "owner", "stack"))


def test_a_call_that_lack_of_memory_ended_is_a_death() -> None:
    said: list[str] = []
    with pytest.raises(Fault, match="solver_died"):
        call(SHORT, said.append)
    assert said == ["solver-0 died: its process ended during ask"]
    assert last_line(SHORT) == "the node's memory ran out: 22.41 of 23.54 GB used"


@pytest.mark.parametrize(("address", "kept"), [(None, "0"), ("", "0"), ("10.0.0.1:6379", None)])
def test_only_a_cluster_that_is_named_is_not_ours(
    monkeypatch: pytest.MonkeyPatch, address: str | None, kept: str | None
) -> None:
    monkeypatch.setattr(os, "environ", {} if address is None else {"RAY_ADDRESS": address})
    cluster.environment(RayConfig())
    assert os.environ.get("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER") == kept


@pytest.mark.parametrize("method", ["ask", "play", "ping"])
@pytest.mark.parametrize("turns", [0, 1, 2])
def test_a_call_that_is_cancelled_as_its_answer_comes_is_cancelled(method: str, turns: int) -> None:
    """Else a task of a run that goes back to its checkpoint lives on, and waits for a round that nobody plays."""

    async def play() -> bool:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        crew = crew_of(lambda: answer)
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
        crew = crew_of(asyncio.get_running_loop().create_future, 0.05)
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

        crew = crew_of(asked, 1.5)
        line = [asyncio.create_task(crew[0].ask()) for _ in range(4)]
        for i in range(3):  # all three together take longer than one may
            await asyncio.sleep(0.6)
            answers[i].set_result(i)
        assert await asyncio.gather(*line[:3]) == [0, 1, 2]
        with pytest.raises(Fault, match="solver_deadline"):
            await line[3]

    asyncio.run(play())
    assert killed == [False]
