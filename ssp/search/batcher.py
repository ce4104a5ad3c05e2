"""Requests of many callers answered in few calls.

Owns the queue of waiting items and the threads that work it off. Promises that a call's results come in the order of its
items, that items are merged with others of the same key only, that a failed call fails those it held, that a long call
does not hold up the short ones behind it, and that what waits is bounded. Refuses to know what an item is.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ssp.base.errors import Fault

Item = TypeVar("Item")
Result = TypeVar("Result")
Info = TypeVar("Info")

BUSY = "retriever_busy"
WAITING = 65_536
"""Items that may wait; more are refused."""

Outcome = tuple[Any, Any, BaseException | None]
"""A call's future, and its result or its error."""


@dataclass
class _Call(Generic[Item, Result, Info]):
    """One caller's items: `taken` of them are with a worker, `left` have no result yet. `over`: nobody waits for it."""

    key: Hashable
    items: Sequence[Item]
    left: int
    at: float
    future: Any
    results: list[Any]
    infos: list[Info] = field(default_factory=list)
    taken: int = 0
    over: bool = False


_Piece = tuple[_Call[Item, Result, Info], int, int]
"""Items [first, last) of a call."""


def settle(outcomes: Sequence[Outcome]) -> None:
    """Give each future its result or error, unless it was cancelled."""
    for future, result, error in outcomes:
        with suppress(InvalidStateError):
            if not future.done():
                future.set_result(result) if error is None else future.set_exception(error)


class Batcher(Generic[Item, Result, Info]):
    """`work(key, items) -> (results, info)` called with the merged items of concurrent callers, by `workers` threads.

    At most `limit` items a call of `work`; a longer call is cut, and its pieces run side by side. `window`: seconds that
    the first item waits for company while others are calling too; a lone caller never waits. `settle` gets what a call
    of `work` ended, all at once, in the worker's thread: an event loop is woken once for many callers.
    """

    def __init__(
        self,
        work: Callable[[Hashable, list[Item]], tuple[Sequence[Result], Info]],
        limit: int,
        window: float = 0.0,
        workers: int = 1,
        waiting: int = WAITING,
        settle: Callable[[Sequence[Outcome]], None] = settle,
    ) -> None:
        self._work, self._limit, self._window, self._waiting = work, limit, window, waiting
        self._settle = settle
        self._calls: deque[_Call[Item, Result, Info]] = deque()
        self._items = 0
        self._company = self._gathering = self._closed = False
        lock = threading.Lock()
        self._some, self._enough = threading.Condition(lock), threading.Condition(lock)
        self._threads = [threading.Thread(target=self._run, daemon=True, name=f"batch-{i}") for i in range(workers)]
        for thread in self._threads:
            thread.start()

    def submit(self, key: Hashable, items: Sequence[Item], future: Any = None) -> Any:
        """A future of the results in the order of `items`, and the infos of the calls that made them: `future` itself, or
        a `concurrent.futures.Future`. Fault `retriever_busy` when too much waits already."""
        future = Future() if future is None else future
        if not items:
            future.set_result(([], []))
            return future
        call: _Call[Item, Result, Info] = _Call(
            key, items, len(items), time.perf_counter(), future, [None] * len(items)
        )
        with self._some:
            if self._closed or self._items + len(items) > max(self._waiting, len(items)):
                raise Fault(BUSY, "it is closing" if self._closed else f"{self._items} items wait already")
            self._calls.append(call)
            self._items += len(items)
            if self._items >= self._limit:
                self._enough.notify_all()
            if not self._gathering or self._items > self._limit:
                self._some.notify(-(-len(items) // self._limit))
        return future

    @property
    def waiting(self) -> int:
        """Items that no worker has taken yet."""
        return self._items

    def close(self) -> None:
        """End the threads; what waits fails with `retriever_busy`."""
        with self._some:
            self._closed = True
            calls, self._items = list(self._calls), 0
            self._calls.clear()
            self._some.notify_all()
            self._enough.notify_all()
        if calls:
            self._settle([(call.future, None, Fault(BUSY, "it is closing")) for call in calls])
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (pieces := self._next()) is not None:
            items = [item for call, first, last in pieces for item in call.items[first:last]]
            try:
                results, info = self._work(pieces[0][0].key, items)
                if len(results) != len(items):
                    raise RuntimeError(f"{len(results)} results of {len(items)} items")
            except BaseException as error:  # noqa: BLE001 (each caller raises it)
                self._fail(pieces, error)
            else:
                self._deliver(pieces, results, info)

    def _next(self) -> list[_Piece[Item, Result, Info]] | None:
        """The next items to work on, of one key; None when closed."""
        with self._some:
            while True:
                # While one worker gathers, what comes is its own until it has enough.
                while not self._closed and (not self._calls or self._gathering and self._items < self._limit):
                    self._some.wait()
                self._gather()
                if self._closed:
                    return None
                if pieces := self._take():
                    break
            self._company = len(pieces) > 1
            if self._calls:
                self._some.notify()
            return pieces

    def _gather(self) -> None:
        """Wait for company, if there was some lately."""
        if self._gathering:
            return
        self._gathering = True
        while self._window and self._company and self._calls and not self._closed and self._items < self._limit:
            left = self._calls[0].at + self._window - time.perf_counter()
            if left <= 0:
                break
            self._enough.wait(left)
        self._gathering = False

    def _take(self) -> list[_Piece[Item, Result, Info]]:
        """Up to `limit` items of the oldest call's key; what is left of a long call goes to the end of the queue."""
        pieces: list[_Piece[Item, Result, Info]] = []
        room, others, rest = self._limit, [], []
        while self._calls and room:
            call = self._calls.popleft()
            if call.future.done():  # cancelled
                self._items -= len(call.items) - call.taken
                continue
            if pieces and call.key != pieces[0][0].key:
                others.append(call)
                continue
            first = call.taken
            call.taken = min(len(call.items), first + room)
            room -= call.taken - first
            pieces.append((call, first, call.taken))
            if call.taken < len(call.items):
                rest.append(call)
        self._calls.extendleft(reversed(others))
        self._calls.extend(rest)
        self._items -= self._limit - room
        return pieces

    def _deliver(self, pieces: list[_Piece[Item, Result, Info]], results: Sequence[Result], info: Info) -> None:
        at, done = 0, []
        with self._some:
            for call, first, last in pieces:
                call.results[first:last] = results[at : at + last - first]
                at += last - first
                call.left -= last - first
                call.infos.append(info)
                if not call.left and not call.over:
                    done.append((call.future, (call.results, call.infos), None))
        if done:
            self._settle(done)

    def _fail(self, pieces: list[_Piece[Item, Result, Info]], error: BaseException) -> None:
        with self._some:
            calls = [call for call, _, _ in pieces if not call.over]
            for call in calls:
                call.over = True
            self._items -= sum(len(call.items) - call.taken for call in calls)
            self._calls = deque(call for call in self._calls if not call.over)
        if calls:
            self._settle([(call.future, None, error) for call in calls])
