"""A channel over a queue that dies, is full, is closed, or never answers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from fakes import FaultyCrew, on_calls

from ssp.errors import InvariantError, SspError
from ssp.queues import Channel, Queue
from ssp.selfplay.crew import LocalCrew


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 20))


def crew_of(items: int = 10) -> FaultyCrew:
    return FaultyCrew(LocalCrew("queue", lambda i: Queue(items, 1000)))


def queue_in(crew: FaultyCrew) -> Queue:
    inner = crew.inner
    assert isinstance(inner, LocalCrew)
    queue: Queue = inner._workers[0]
    return queue


def test_in_and_out() -> None:
    async def work() -> None:
        channel = Channel(crew_of(), 5)
        await channel.put(1, "b", 1, 1)
        await channel.put(0, "a", 1, 1)
        assert [await channel.take(0), await channel.take(0), await channel.take(1)] == ["a", "a", "b"]
        await channel.ack(0)
        await channel.ack(0)

    run(work())


def test_an_empty_block_is_a_block() -> None:
    async def work() -> None:
        channel = Channel(crew_of(), 5)
        await channel.put(0, [], 0, 0)
        assert await channel.take(0) == []

    run(work())


def test_take_waits_for_put_and_close_ends_it() -> None:
    async def work() -> None:
        channel = Channel(crew_of(), 5)
        first, second = asyncio.create_task(channel.take(0)), asyncio.create_task(channel.take(1))
        await asyncio.sleep(0)
        await channel.put(0, "a", 1, 1)
        assert await first == "a" and not second.done()
        await channel.close(1)
        assert await second is None
        await channel.clear()  # and open again
        again = asyncio.create_task(channel.take(1))
        await asyncio.sleep(0)
        assert not again.done()
        await channel.put(1, "b", 1, 1)
        assert await again == "b"

    run(work())


def test_closed_channel_still_hands_over_what_was_put() -> None:
    async def work() -> None:
        channel = Channel(crew_of(), 5)
        await channel.put(0, "a", 1, 1)
        await channel.close(1)
        assert await channel.take(0) == "a" and await channel.take(1) is None

    run(work())


@pytest.mark.parametrize("fault", [True, False])
def test_the_queue_dies_between_put_and_take(fault: bool) -> None:
    """It comes back empty, whether the taker sees the fault or just an empty queue."""

    async def work() -> None:
        crew = crew_of()
        channel = Channel(crew, 5)
        await channel.put(0, "a", 1, 1)
        await channel.put(1, "b", 1, 1)
        queue_in(crew).clear()
        if fault:
            crew.fails = on_calls("lease", 1, cause="queue_died")
        assert await channel.take(0) == "a"
        await channel.ack(0)
        assert await channel.take(1) == "b"
        assert queue_in(crew).state.lease("another", 9, 1) == []

    run(work())


def test_faults_of_put_ack_and_clear_are_survived() -> None:
    async def work() -> None:
        crew = crew_of()
        channel = Channel(crew, 5)
        crew.fails = lambda worker, name, count, args: "queue_died" if count == 1 else ""
        await channel.put(0, "a", 1, 1)
        assert await channel.take(0) == "a"
        await channel.ack(0)
        await channel.clear()
        assert crew.counts["put"] == 3  # lost, put, put again after the lost take

    run(work())


@pytest.mark.parametrize("method", ["ack", "clear"])
def test_a_call_that_the_queue_never_heard_is_made_again(method: str) -> None:
    """A fault does not prove that the queue is empty: an old block must not meet a new round of the same number."""

    async def work() -> None:
        crew = crew_of(items=1)
        channel = Channel(crew, 5)
        await channel.put(0, "old", 1, 1)
        assert await channel.take(0) == "old"
        crew.fails = on_calls(method, 1, 2, cause="queue_unavailable")
        await (channel.ack(0) if method == "ack" else channel.clear())
        key = int(method == "ack")
        await channel.put(key, "new", 1, 1)
        assert await channel.take(key) == "new"

    run(work())


def test_a_full_queue_holds_the_putter_back_until_ack() -> None:
    async def work() -> None:
        crew = crew_of(items=2)
        channel = Channel(crew, 5)
        await channel.put(0, "a", 2, 1)
        second = asyncio.create_task(channel.put(1, "b", 2, 1))
        await asyncio.sleep(0.01)
        assert not second.done() and crew.counts["put"] == 2
        assert await channel.take(0) == "a"
        await channel.ack(0)
        await second
        assert crew.counts["put"] == 2  # it waited there, with what it carries
        assert await channel.take(1) == "b"

    run(work())


def test_deadlines() -> None:
    async def work() -> None:
        channel = Channel(crew_of(items=1), 0.05)
        await channel.put(0, "a", 1, 1)
        with pytest.raises(SspError, match="did not answer put 1 .*is a learner stuck"):
            await channel.put(1, "b", 1, 1)
        crew = crew_of()
        channel = Channel(crew, 0.05)
        await channel.put(0, "a", 1, 1)
        crew.fails = lambda worker, name, count, args: "queue_died" if name == "lease" else ""
        with pytest.raises(SspError, match="did not hand over block 0"):
            await channel.take(0)
        crew.fails = lambda worker, name, count, args: "queue_died"
        with pytest.raises(SspError, match="did not answer ack"):
            await channel.ack(0)

    run(work())


def test_a_block_that_never_fits_is_said_at_once() -> None:
    with pytest.raises(InvariantError, match="raise queue.items"):
        run(Channel(crew_of(items=1), 5).put(0, "a", 2, 1))
