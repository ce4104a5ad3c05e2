"""Requests of many callers are answered in few calls. A call that fails fails those whose items it
held; a long request does not hold up the short ones behind it; what waits is bounded."""

import math
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
class _Call:
    """One caller's items: `taken` of them are with a worker, `left` have no result yet."""

    key: Hashable
    items: Sequence[Any]
    future: Any
    at: float
    left: int
    results: list[Any]
    infos: list[Any] = field(default_factory=list)
    taken: int = 0


_Piece = tuple[_Call, int, int]
"""Items [first, last) of a call."""


def settle(outcomes: Sequence[Outcome]) -> None:
    """Give each future its result or error, unless it was cancelled or has one."""
    for future, result, error in outcomes:
        with suppress(InvalidStateError):
            if not future.done():
                future.set_result(result) if error is None else future.set_exception(error)


class Batcher(Generic[Item, Result, Info]):
    """Calls `work(key, items) -> (results, info)` with the merged items of concurrent callers, in
    `workers` threads. A call of `work` gets at most `limit` items; a longer request is cut, and its
    pieces run side by side. `window`: seconds that the first item waits for company while others
    are calling too; a lone caller never waits. `settle` gets all that one call of `work` ended, in
    the worker's thread: an event loop is woken once for many callers."""

    def __init__(
        self,
        work: Callable[[Hashable, list[Item]], tuple[Sequence[Result], Info]],
        limit: int,
        window: float = 0.0,
        workers: int = 1,
        waiting: int = WAITING,
        settle: Callable[[Sequence[Outcome]], None] = settle,
    ) -> None:
        self._work = work
        self._limit = limit
        self._window = window
        self._most = waiting
        self._settle = settle
        self._calls: deque[_Call] = deque()
        self.waiting = 0  # items that no worker has taken yet
        self._company = False  # whether the last batch held more than one piece
        self._gathering = False  # whether a worker waits for items to join its first
        self._closed = False
        lock = threading.Lock()
        self._some = threading.Condition(lock)
        self._enough = threading.Condition(lock)
        self._threads = []
        for i in range(workers):
            thread = threading.Thread(target=self._run, daemon=True, name=f"batch-{i}")
            self._threads.append(thread)
            thread.start()

    def submit(self, key: Hashable, items: Sequence[Item], future: Any = None) -> Any:
        """A future of the results in the order of `items`, and the infos of the calls that made
        them. It is `future` where one is given, else a `concurrent.futures.Future`. Fault
        `retriever_busy` when too much waits already."""
        future = Future() if future is None else future
        if not items:
            future.set_result(([], []))
            return future
        count = len(items)
        with self._some:
            if self._closed:
                raise Fault(BUSY, "it is closing")
            if self.waiting and self.waiting + count > self._most:
                raise Fault(BUSY, f"{self.waiting} items wait already")
            call = _Call(key, items, future, time.perf_counter(), count, [None] * count)
            self._calls.append(call)
            self.waiting += count
            if self.waiting >= self._limit:
                self._enough.notify_all()
            if not self._gathering or self.waiting > self._limit:
                self._some.notify(math.ceil(count / self._limit))
        return future

    def close(self) -> None:
        """End the threads; what waits fails with `retriever_busy`."""
        with self._some:
            self._closed = True
            calls = list(self._calls)
            self._calls.clear()
            self.waiting = 0
            self._some.notify_all()
            self._enough.notify_all()
        if calls:
            self._settle([(call.future, None, Fault(BUSY, "it is closing")) for call in calls])
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while pieces := self._next():
            items = [item for call, first, last in pieces for item in call.items[first:last]]
            try:
                results, info = self._work(pieces[0][0].key, items)
                if len(results) != len(items):
                    raise RuntimeError(f"{len(results)} results of {len(items)} items")
            except BaseException as error:  # noqa: BLE001 (each caller raises it)
                self._settle([(call.future, None, error) for call, _, _ in pieces])
                continue
            ended = []
            at = 0
            with self._some:
                for call, first, last in pieces:
                    count = last - first
                    call.results[first:last] = results[at : at + count]
                    call.infos.append(info)
                    call.left -= count
                    at += count
                    if not call.left:
                        ended.append((call.future, (call.results, call.infos), None))
            if ended:
                self._settle(ended)

    def _next(self) -> list[_Piece]:
        """The next items to work on, of one key; none when closed."""
        pieces: list[_Piece] = []
        with self._some:
            while not pieces and not self._closed:
                # While one worker gathers, what comes is its own until it has enough.
                while not self._closed and (
                    not self._calls or self._gathering and self.waiting < self._limit
                ):
                    self._some.wait()
                if not self._gathering:  # wait for company, if there was some lately
                    self._gathering = True
                    while self._window and self._company and self._calls and not self._closed:
                        left = self._calls[0].at + self._window - time.perf_counter()
                        if left <= 0 or self.waiting >= self._limit:
                            break
                        self._enough.wait(left)
                    self._gathering = False
                if not self._closed:
                    pieces = self._take()
            self._company = len(pieces) > 1
            if self._calls:
                self._some.notify()
        return pieces

    def _take(self) -> list[_Piece]:
        """Up to `limit` items of the oldest call's key; what is left of a long call goes to the end
        of the queue."""
        pieces: list[_Piece] = []
        others: list[_Call] = []
        cut: list[_Call] = []
        room = self._limit
        while self._calls and room:
            call = self._calls.popleft()
            if call.future.done():  # cancelled, or failed
                self.waiting -= len(call.items) - call.taken
            elif pieces and call.key != pieces[0][0].key:
                others.append(call)
            else:
                first = call.taken
                call.taken = min(len(call.items), first + room)
                room -= call.taken - first
                pieces.append((call, first, call.taken))
                if call.taken < len(call.items):
                    cut.append(call)
        self._calls.extendleft(reversed(others))
        self._calls.extend(cut)
        self.waiting -= self._limit - room
        return pieces
