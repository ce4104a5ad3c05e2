"""The queue's state: budgets, order, leases, repeated calls, the sweep; ages by a clock that tests turn."""

from __future__ import annotations

import pytest

from ssp.base.errors import InvariantError
from ssp.selfplay.queues import LeaseQueue, Ticket
from ssp.selfplay.queues import queue as leases

ITEMS, BYTES = 10, 100


def ticket(id: str, order: int = 0, items: int = 1, nbytes: int = 1, version: int = -1) -> Ticket:
    return Ticket(id, order, f"block of {id}", items, nbytes, version)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> LeaseQueue:
    return LeaseQueue(ITEMS, BYTES, clock)


def ids(tickets: list[Ticket]) -> list[str]:
    return [t.id for t in tickets]


def test_oldest_games_first_and_blocks_of_many(queue: LeaseQueue) -> None:
    queue.put([ticket("c", 3, 4), ticket("a", 1, 2)])
    queue.put([ticket("b", 1, 2)])
    assert ids(queue.lease("x", 4)) == ["a", "b"]
    assert ids(queue.lease("y", 1)) == ["c"]  # more than was asked for, or nobody could ever have it
    assert queue.lease("z", 4) == []


def test_a_put_without_room_changes_nothing(queue: LeaseQueue) -> None:
    assert queue.put([ticket("a", items=6, nbytes=60)])
    assert not queue.put([ticket("b", items=1), ticket("c", items=4)])
    assert not queue.put([ticket("b", nbytes=41)])
    assert queue.figures()["items"] == 6
    assert queue.put([ticket("a", items=6), ticket("b", items=4, nbytes=40)])  # only what is new needs room
    queue.lease("x", 99)
    assert not queue.put([ticket("c")])  # a lease frees nothing
    queue.ack("x")
    assert queue.put([ticket("c")])
    with pytest.raises(InvariantError, match="can never fit"):
        queue.put([ticket("d", items=ITEMS + 1)])


def test_a_known_id_is_never_queued_twice(queue: LeaseQueue) -> None:
    for _ in range(2):
        queue.put([ticket("a"), ticket("a")])
        assert queue.figures()["items"] == 1
    queue.lease("x", 1)
    queue.put([ticket("a")])
    assert queue.lease("y", 1) == []
    queue.ack("x")
    assert queue.put([ticket("a")])  # a put whose answer was lost until now
    assert queue.lease("y", 1) == [] and queue.figures()["items"] == 0


def test_calls_repeated_after_a_lost_answer_change_nothing(queue: LeaseQueue) -> None:
    queue.put([ticket("a"), ticket("b")])
    assert ids(queue.lease("x", 1)) == ids(queue.lease("x", 1)) == ["a"]
    assert ids(queue.lease("y", 2)) == ["b"]  # never what another one has
    assert (queue.ack("x"), queue.ack("x")) == (["a"], [])
    assert queue.figures()["items"] == queue.figures()["leased"] == 1


def test_the_sweep_leases_what_is_too_old(queue: LeaseQueue) -> None:
    queue.put([ticket("old", 1, version=2), ticket("new", 2, version=3), ticket("ageless", 3)])
    queue.put([ticket("busy", 0, version=1)])
    assert ids(queue.lease("x", 1)) == ["busy"]  # its holder checks it
    assert ids(queue.sweep("s", 3)) == ids(queue.sweep("s", 3)) == ["old"]
    assert ids(queue.lease("y", 9)) == ["new", "ageless"]
    assert queue.ack("s") == ["old"]


def test_what_is_put_again_had_its_room(queue: LeaseQueue) -> None:
    """The queue died, and another one was quicker: it waits for what is put again, which must not wait for it."""
    queue.put([ticket("b", 1, ITEMS, version=0)])
    assert not queue.put([ticket("a", 0, version=0)])
    assert queue.put([ticket("a", 0, version=0)], again=True) and queue.put([ticket("a", 0, version=0)])
    assert not queue.put([ticket("c", 2)])
    assert ids(queue.sweep("x", 9)) == ["a", "b"]  # all that is old, also above the budget
    queue.clear()
    assert queue.put([ticket("a", 0, ITEMS)]) and ids(queue.lease("y", 1, order=0)) == queue.ack("y") == ["a"]


def test_age_and_depth_are_known(queue: LeaseQueue, clock: Clock) -> None:
    assert queue.figures() == {"items": 0, "bytes": 0, "leased": 0, "age": 0}
    queue.put([ticket("a", items=2, nbytes=30)])
    clock.now = 3
    queue.put([ticket("b", items=1, nbytes=10)])
    queue.lease("x", 1)
    clock.now = 5
    assert queue.figures() == {"items": 3, "bytes": 40, "leased": 1, "age": 5}


def test_what_is_remembered_is_bounded(queue: LeaseQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "REMEMBERED", 3)
    for i in range(9):
        queue.put([ticket(str(i))])
        queue.lease(f"k{i}", 1)
        queue.ack(f"k{i}")
    assert list(queue._done) == ["6", "7", "8"]
