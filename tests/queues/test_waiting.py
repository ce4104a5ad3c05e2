"""Calls that wait inside a queue: for room in their turn, for tickets; never in vain."""

from __future__ import annotations

import asyncio

import pytest

from ssp.base.errors import InvariantError
from ssp.selfplay.queues import Queue, Ticket

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


def ticket(id: str, items: int = 1, order: int = 0) -> Ticket:
    return Ticket(id, order, None, items, 1)


def ids(tickets: list[Ticket]) -> list[str]:
    return [t.id for t in tickets]


async def soon() -> None:
    await asyncio.sleep(0.005)


async def test_room_is_given_in_the_order_of_asking() -> None:
    queue = Queue(4, 100)
    assert await queue.put([ticket("a", 3)])
    big = asyncio.create_task(queue.put([ticket("big", 4)], 5))
    small = asyncio.create_task(queue.put([ticket("small")], 5))
    await soon()
    assert ids(await queue.lease("x", 4)) == ["a"]
    await queue.ack("x")
    assert await big and not small.done()
    assert ids(await queue.lease("y", 4)) == ["big"]
    await queue.ack("y")
    assert await small


async def test_no_room_in_time_is_false_and_leaves_nothing() -> None:
    queue = Queue(1, 100)
    await queue.put([ticket("a")])
    assert not await queue.put([ticket("b")])
    assert not await queue.put([ticket("b")], 0.01)
    await queue.lease("x", 1)
    await queue.ack("x")
    assert queue.figures()["items"] == 0


async def test_what_never_fits_is_said_to_who_waited_too() -> None:
    queue = Queue(1, 100)
    await queue.put([ticket("a")])
    first = asyncio.create_task(queue.put([ticket("b")], 5))
    await soon()
    second = asyncio.create_task(queue.put([ticket("c", 2)], 5))
    await soon()
    await queue.lease("x", 1)
    await queue.ack("x")
    assert await first
    with pytest.raises(InvariantError, match="can never fit"):
        await second


async def test_takers_wait_for_tickets_of_their_order() -> None:
    queue = Queue(9, 100)
    two = asyncio.create_task(queue.lease("two", 1, order=2, wait=5))
    some = asyncio.create_task(queue.lease("some", 1, wait=5))
    await soon()
    await queue.put([ticket("a", order=1)])
    assert ids(await some) == ["a"] and not two.done()
    await queue.put([ticket("b", order=2)])
    assert ids(await two) == ["b"]
    assert await queue.lease("none", 1, wait=0.01) == []


async def test_who_has_gone_takes_nothing() -> None:
    queue = Queue(9, 100)
    gone = asyncio.create_task(queue.lease("gone", 1, wait=5))
    await soon()
    gone.cancel()
    await soon()
    await queue.put([ticket("a")])
    assert ids(await queue.lease("x", 1)) == ["a"]


async def test_what_is_put_again_does_not_wait_in_line() -> None:
    queue = Queue(1, 100)
    await queue.put([ticket("b", order=1)])
    later = asyncio.create_task(queue.put([ticket("c", order=2)], 5))
    await soon()
    assert await queue.put([ticket("a")], again=True)
    assert ids(await queue.lease("x", 1)) == ["a"]
    await queue.ack("x")
    await soon()
    assert not later.done()
    await queue.lease("y", 1)
    await queue.ack("y")
    assert await later


async def test_clear_sends_everybody_away() -> None:
    """What waits is of the time before: its number may come again with other content."""
    queue = Queue(1, 100)
    await queue.put([ticket("a")])
    old = asyncio.create_task(queue.put([ticket("b")], 5))
    taker = asyncio.create_task(queue.lease("x", 1, order=7, wait=5))
    await soon()
    await queue.clear()
    async with asyncio.timeout(2):
        assert await old is False and await taker == []
    assert await queue.put([ticket("b")]) and ids(await queue.lease("x", 1)) == ["b"]
