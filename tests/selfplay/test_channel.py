"""A channel over a queue that dies, is full, is closed, or never answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes import FaultyCrew, on_calls

from ssp.base.crew import LocalCrew
from ssp.base.errors import InvariantError, SspError
from ssp.selfplay.queues import Channel, Queue, Ticket

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


def crew_of(items: int = 10) -> FaultyCrew:
    return FaultyCrew(LocalCrew(Queue, "queue", lambda i: Queue(items, 1000)))


def block(key: int, content: Any, items: int = 1) -> list[Ticket]:
    return [Ticket(str(key), key, content, items, 1)]


def queue_in(crew: FaultyCrew) -> Queue:
    return crew.inner.workers[0]  # type: ignore[attr-defined, no-any-return]


async def test_in_and_out() -> None:
    channel = Channel(crew_of(), 5)
    await channel.put(1, block(1, "b", 1))
    await channel.put(0, block(0, "a", 1))
    assert [await channel.take(0), await channel.take(0), await channel.take(1)] == [["a"], ["a"], ["b"]]
    await channel.ack(0)
    await channel.ack(0)
    assert [*channel._unacked] == [1]


async def test_take_waits_for_put_and_close_ends_it() -> None:
    channel = Channel(crew_of(), 5)
    first, second = asyncio.create_task(channel.take(0)), asyncio.create_task(channel.take(1))
    await asyncio.sleep(0)
    await channel.put(0, block(0, "a", 1))
    assert await first == ["a"] and not second.done()
    await channel.close(1)
    assert await second is None
    await channel.clear()  # and open again, without what was not acknowledged
    again, last = asyncio.create_task(channel.take(0)), asyncio.create_task(channel.take(1))
    await asyncio.sleep(0.01)
    assert not again.done() and not last.done()
    await channel.put(0, block(0, "b", 1))
    assert await again == ["b"]
    last.cancel()


@pytest.mark.parametrize("fault", [True, False])
async def test_the_queue_dies_between_put_and_take(fault: bool) -> None:
    """It comes back empty, whether the taker sees the fault or just an empty queue."""
    crew = crew_of()
    channel = Channel(crew, 5)
    await channel.put(0, block(0, "a", 1))
    await channel.put(1, block(1, "b", 1))
    await queue_in(crew).clear()
    if fault:
        crew.fails = on_calls("lease", 1, cause="queue_died")
    assert await channel.take(0) == ["a"]
    await channel.ack(0)
    assert await channel.take(1) == ["b"]
    assert queue_in(crew).state.lease("another", 9) == []


@pytest.mark.parametrize("method", ["ack", "clear"])
async def test_a_call_that_the_queue_never_heard_is_made_again(method: str) -> None:
    """A fault does not prove that the queue is empty: an old block must not meet a new round of the same number."""
    crew = crew_of(items=1)
    channel = Channel(crew, 5)
    await channel.put(0, block(0, "old", 1))
    assert await channel.take(0) == ["old"]
    crew.fails = on_calls(method, 1, 2, cause="queue_unavailable")
    await (channel.ack(0) if method == "ack" else channel.clear())
    key = int(method == "ack")
    await channel.put(key, block(key, "new", 1))
    assert await channel.take(key) == ["new"]


async def test_a_full_queue_holds_the_putter_back_until_ack() -> None:
    crew = crew_of(items=2)
    channel = Channel(crew, 5)
    await channel.put(0, block(0, "a", 2))
    second = asyncio.create_task(channel.put(1, block(1, "b", 2)))
    await asyncio.sleep(0.01)
    assert not second.done() and crew.counts["put"] == 2
    assert await channel.take(0) == ["a"]
    await channel.ack(0)
    await second
    assert crew.counts["put"] == 2  # it waited there, with what it carries
    assert await channel.take(1) == ["b"]


async def test_deadlines() -> None:
    channel = Channel(crew_of(items=1), 0.05)
    await channel.put(0, block(0, "a", 1))
    with pytest.raises(SspError, match="did not answer put 1 .*is a learner stuck"):
        await channel.put(1, block(1, "b", 1))
    crew = crew_of()
    channel = Channel(crew, 0.05)
    await channel.put(0, block(0, "a", 1))
    crew.fails = lambda worker, name, count, args: "queue_died" if name == "lease" else ""
    with pytest.raises(SspError, match="did not hand over block 0"):
        await channel.take(0)
    crew.fails = lambda worker, name, count, args: "queue_died"
    with pytest.raises(SspError, match="did not answer ack"):
        await channel.ack(0)


async def test_a_block_that_never_fits_is_said_at_once() -> None:
    with pytest.raises(InvariantError, match="can never fit"):
        await Channel(crew_of(items=1), 5).put(0, block(0, "a", 2))


async def test_who_slips_into_a_queue_that_came_back_does_not_shut_out_what_it_had() -> None:
    """The queue of one block dies with one in it; the next one, which waited, is in before anybody misses the first."""
    crew = crew_of(items=1)
    channel = Channel(crew, 5)
    await channel.put(0, block(0, "a"))
    second = asyncio.create_task(channel.put(1, block(1, "b")))
    await asyncio.sleep(0.01)
    await queue_in(crew).clear()
    await second
    for key, content in ((0, "a"), (1, "b")):
        assert await asyncio.wait_for(channel.take(key), 2) == [content]
        await channel.ack(key)
    assert queue_in(crew).figures()["items"] == 0


def aging(key: int, *versions: int) -> list[Ticket]:
    """A block that does not age, and one of each version."""
    return [Ticket(str(key), key, "head", 0, 0), *(Ticket(f"{key}@{v}", key, f"{key}@{v}", 1, 1, v) for v in versions)]


@pytest.mark.parametrize("dies", [False, True])
async def test_what_waits_too_long_is_swept_accounted_for_and_gone(dies: bool) -> None:
    crew, accounted = crew_of(), list[str]()
    channel = Channel(crew, 5)
    for key, versions in ((0, (1, 2)), (1, (1, 2)), (2, (2, 3))):
        await channel.put(key, aging(key, *versions))

    async def account(content: str) -> None:
        accounted.append(content)

    assert await channel.take(0) == ["head", "0@1", "0@2"]
    await channel.sweep(1, account)
    assert crew.counts["sweep"] == 0  # nothing is that old
    await channel.sweep(2, account)
    assert accounted == ["1@1"]  # 0@1 is in somebody's hands
    await channel.ack(0)
    if dies:
        await queue_in(crew).clear()
    assert await channel.take(1) == ["head", "1@2"]
    await channel.ack(1)
    assert await channel.take(2) == ["head", "2@2", "2@3"]
    await channel.ack(2)
    assert queue_in(crew).figures()["items"] == 0 and accounted == ["1@1"]


@pytest.mark.parametrize("method", ["sweep", "ack"])
async def test_a_queue_that_dies_in_a_sweep_counts_nothing_twice(method: str) -> None:
    crew, accounted = crew_of(), list[str]()
    channel = Channel(crew, 5)
    await channel.put(0, aging(0, 1, 5))

    async def account(content: str) -> None:
        accounted.append(content)

    def fails(worker: int, name: str, count: int, args: Any) -> str:
        if name == method and count == 1:
            queue_in(crew).state.clear()
            return "queue_died"
        return ""

    crew.fails = fails
    await channel.sweep(2, account)
    assert accounted == ([] if method == "sweep" else ["0@1"])
    left = await channel.take(0)
    assert left == (["head", "0@1", "0@5"] if method == "sweep" else ["head", "0@5"])
