"""Requests of many callers answered in few calls."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssp.base.errors import Fault
from ssp.search.batcher import BUSY, Batcher

PATIENCE = 20


class Work:
    """Doubles its items, and remembers its calls. Held back while `gate` is shut; fails on the items in `bad`."""

    def __init__(self, bad: set[int] | None = None) -> None:
        self.calls: list[tuple[Hashable, list[int]]] = []
        self.gate, self.entered, self.bad = threading.Event(), threading.Semaphore(0), bad or set()
        self.gate.set()

    def __call__(self, key: Hashable, items: list[int]) -> tuple[list[Any], str]:
        self.calls.append((key, items))
        self.entered.release()
        assert self.gate.wait(PATIENCE)
        if found := self.bad & set(items):
            raise ValueError(f"bad {min(found)}")
        return [(key, 2 * item) for item in items], f"call {len(self.calls)}"


@contextmanager
def batching(work: Work, limit: int = 4, **options: Any) -> Iterator[Batcher[int, Any, str]]:
    batcher: Batcher[int, Any, str] = Batcher(work, limit, **options)
    try:
        yield batcher
    finally:
        work.gate.set()
        batcher.close()


def results(future: Future[Any]) -> list[Any]:
    return list(future.result(PATIENCE)[0])


def test_waiting_calls_are_merged_in_order_and_by_key() -> None:
    work = Work()
    work.gate.clear()
    with batching(work) as batcher:
        first = batcher.submit("a", [0])
        assert work.entered.acquire(timeout=PATIENCE)
        later = [
            batcher.submit("a", [1]),
            batcher.submit("b", [5]),
            batcher.submit("a", [2, 3]),
            batcher.submit("b", [6]),
        ]
        assert batcher.waiting == 5
        work.gate.set()
        assert [results(f) for f in [first, *later]] == [
            [("a", 0)], [("a", 2)], [("b", 10)], [("a", 4), ("a", 6)], [("b", 12)],
        ]  # fmt: skip
    assert work.calls == [("a", [0]), ("a", [1, 2, 3]), ("b", [5, 6])] and batcher.waiting == 0


def test_a_long_call_is_cut_and_lets_the_short_ones_pass() -> None:
    work = Work()
    work.gate.clear()
    with batching(work, limit=4) as batcher:
        long = batcher.submit("a", list(range(10)))
        assert work.entered.acquire(timeout=PATIENCE)
        short = batcher.submit("a", [50])
        work.gate.set()
        found, infos = long.result(PATIENCE)
        assert found == [("a", 2 * i) for i in range(10)] and len(infos) == 3
        assert results(short) == [("a", 100)]
    assert [items for _, items in work.calls][1:3] == [[4, 5, 6, 7], [50, 8, 9]]


def test_a_failure_reaches_those_in_its_call_and_nobody_else() -> None:
    work = Work(bad={3})
    work.gate.clear()
    with batching(work) as batcher:
        batcher.submit("a", [0])
        assert work.entered.acquire(timeout=PATIENCE)
        long = batcher.submit("a", [1, 2, 3, 4, 5])
        other, same = batcher.submit("b", [6]), batcher.submit("a", [7])
        work.gate.set()
        with pytest.raises(ValueError, match="bad 3"):
            long.result(PATIENCE)
        assert results(other) == [("b", 12)] and results(same) == [("a", 14)]
        assert batcher.waiting == 0
    assert ("a", [5]) not in work.calls, "what is left of a failed call is not worked on"


def test_what_waits_is_bounded_but_for_one_long_call() -> None:
    work = Work()
    work.gate.clear()
    with batching(work, limit=2, waiting=4) as batcher:
        alone = batcher.submit("a", list(range(7)))
        assert work.entered.acquire(timeout=PATIENCE)
        with pytest.raises(Fault, match=BUSY):
            batcher.submit("a", [1])
        work.gate.set()
        assert len(results(alone)) == 7
        assert results(batcher.submit("a", [1])) == [("a", 2)]


def test_what_nobody_waits_for_is_not_worked_on() -> None:
    work = Work()
    work.gate.clear()
    with batching(work) as batcher:
        first = batcher.submit("a", [0])
        assert work.entered.acquire(timeout=PATIENCE)
        given_up = batcher.submit("a", [1])
        assert given_up.cancel()
        kept = batcher.submit("a", [2])
        first.cancel()  # under way already: its answer has nowhere to go
        work.gate.set()
        assert results(kept) == [("a", 4)] and batcher.waiting == 0
    assert [items for _, items in work.calls] == [[0], [2]]


def test_closing_fails_what_waits_and_what_comes() -> None:
    work = Work()
    work.gate.clear()
    batcher: Batcher[int, Any, str] = Batcher(work, 1)
    running = batcher.submit("a", [0])
    assert work.entered.acquire(timeout=PATIENCE)
    waiting = batcher.submit("a", [1])
    closing = threading.Thread(target=batcher.close)
    closing.start()
    with pytest.raises(Fault, match="closing"):
        waiting.result(PATIENCE)
    work.gate.set()
    closing.join(PATIENCE)
    assert results(running) == [("a", 0)] and not closing.is_alive()
    with pytest.raises(Fault, match="closing"):
        batcher.submit("a", [2])
    assert results(batcher.submit("a", [])) == []


def test_with_company_the_first_waits_for_the_limit_not_for_the_window() -> None:
    """An hour's window: the test ends only because a full batch does not wait, and a lone caller never does."""
    work = Work()
    with batching(work, limit=2, window=3600.0, workers=2) as batcher:
        assert results(batcher.submit("a", [0])) == [("a", 0)], "alone"
        work.gate.clear()
        blockers = [batcher.submit("a", [1, 2]), batcher.submit("a", [3, 4])]
        assert all(work.entered.acquire(timeout=PATIENCE) for _ in range(3))
        pair = [batcher.submit("a", [5]), batcher.submit("a", [6])]
        work.gate.set()
        assert [results(f) for f in pair] == [[("a", 10)], [("a", 12)]]
        assert all(len(results(f)) == 2 for f in blockers)
        together = [batcher.submit("a", [7]), batcher.submit("a", [8])]
        assert [results(f) for f in together] == [[("a", 14)], [("a", 16)]]


@settings(max_examples=25, deadline=None)
@given(
    limit=st.integers(1, 7),
    workers=st.integers(1, 3),
    window=st.sampled_from([0.0, 0.0005]),
    calls=st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 50), max_size=20)), max_size=40),
    bad=st.sets(st.integers(0, 50), max_size=2),
)
def test_every_caller_gets_its_own(
    limit: int, workers: int, window: float, calls: list[tuple[str, list[int]]], bad: set[int]
) -> None:
    work = Work(bad)
    with batching(work, limit, workers=workers, window=window) as batcher, ThreadPoolExecutor(8) as pool:
        futures = list(pool.map(lambda call: batcher.submit(*call), calls))
        for (key, items), future in zip(calls, futures, strict=True):
            try:
                assert results(future) == [(key, 2 * item) for item in items]
            except ValueError as error:
                assert bad, error
            else:
                assert not bad & set(items)
        assert batcher.waiting == 0
    assert all(len(items) <= limit for _, items in work.calls)
