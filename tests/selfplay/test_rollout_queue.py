"""A role's queue: batches by their round, waits for room, closed and opened again."""

from __future__ import annotations

import asyncio

import pytest

from ssp.base.errors import InvariantError, SspError
from ssp.learning.scored import Scored
from ssp.selfplay.records import TrainBatch
from ssp.selfplay.rollout_queue import RolloutQueue

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


def batch(number: int, episodes: int = 1, nbytes: int = 1) -> TrainBatch:
    samples = [Scored(1.0, 0, id=f"{number}-{i}", block="b", row=i) for i in range(episodes)]
    return TrainBatch("solver", number + 1, samples, {"b": None}, nbytes)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def soon() -> None:
    await asyncio.sleep(0.005)


async def test_a_batch_is_taken_by_its_number_until_it_is_done() -> None:
    queue = RolloutQueue("solver", 9, 100)
    second, first = batch(1), batch(0)
    await queue.put(second)
    await queue.put(first)
    assert [await queue.take(0), await queue.take(0), await queue.take(1)] == [first, first, second]
    await queue.done(0)
    await queue.done(0)
    assert queue.figures()["items"] == 1


async def test_a_taker_waits_for_its_batch_and_closing_ends_that() -> None:
    queue = RolloutQueue("solver", 9, 100)
    first, second = asyncio.create_task(queue.take(0)), asyncio.create_task(queue.take(1))
    await soon()
    await queue.put(batch(0))
    assert await first == batch(0) and not second.done()
    await queue.close(1)
    assert await second is None
    queue.clear()  # and open again, without what was there
    again = asyncio.create_task(queue.take(0))
    await soon()
    assert not again.done()
    await queue.put(batch(0, 2))
    assert await again == batch(0, 2)


@pytest.mark.parametrize(("episodes", "nbytes"), [(3, 1), (1, 90)], ids=["items", "bytes"])
async def test_a_full_queue_holds_the_rounds_back_until_a_batch_is_trained(episodes: int, nbytes: int) -> None:
    queue = RolloutQueue("solver", 4, 100)
    await queue.put(batch(0, episodes, nbytes))
    waits = asyncio.create_task(queue.put(batch(1, 2, 11)))
    await soon()
    assert not waits.done()
    await queue.take(0)
    await soon()
    assert not waits.done()  # what is trained now has its room still
    await queue.done(0)
    await waits
    assert queue.figures()["items"] == 2 and queue.figures()["bytes"] == 11


async def test_a_learner_that_is_stuck_is_said_and_a_batch_that_never_fits_too() -> None:
    queue = RolloutQueue("solver", 1, 100, patience=0.02)
    await queue.put(batch(0))
    with pytest.raises(SspError, match="queue of solver"):
        await queue.put(batch(1))
    await queue.done(0)
    await queue.put(batch(1))
    for never in (batch(2, 2), batch(2, 1, 101)):
        with pytest.raises(InvariantError):
            await queue.put(never)


async def test_age_and_size_are_known() -> None:
    clock = Clock()
    queue = RolloutQueue("solver", 9, 100, clock=clock)
    assert queue.figures() == {"items": 0, "bytes": 0, "age": 0}
    await queue.put(batch(0, 2, 30))
    clock.now = 3
    await queue.put(batch(1, 1, 10))
    clock.now = 5
    assert queue.figures() == {"items": 3, "bytes": 40, "age": 5}
