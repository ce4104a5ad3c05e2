"""Requests of many callers answered in few calls.

Owns the queue of waiting items and the threads that work it off. Promises that a call's results come in the order of its
items, that items are merged with others of the same key only, that a failed call fails those it held, and that what
waits is bounded. Refuses to know what an item is.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ssp.errors import Fault

Item = TypeVar("Item")
Result = TypeVar("Result")
Info = TypeVar("Info")

BUSY = "retriever_busy"
WAITING = 65_536
"""Items that may wait; more are refused."""


@dataclass
class _Call(Generic[Item, Result, Info]):
    """One caller's items: `taken` of them are with a worker, `left` have no result yet."""

    key: Hashable
    items: Sequence[Item]
    left: int
    at: float
    future: Future[tuple[list[Result], list[Info]]] = field(default_factory=Future)
    results: list[Any] = field(default_factory=list)
    infos: list[Info] = field(default_factory=list)
    taken: int = 0


_Piece = tuple[_Call[Item, Result, Info], int, int]
"""Items [first, last) of a call."""


class Batcher(Generic[Item, Result, Info]):
    """`work(key, items) -> (results, info)` called with the merged items of concurrent callers, by `workers` threads.

    At most `limit` items a call of `work`; a longer call is cut, and its pieces run side by side. `window`: seconds that
    the first item waits for company while others are calling too; a lone caller never waits.
    """

    def __init__(
        self,
        work: Callable[[Hashable, list[Item]], tuple[Sequence[Result], Info]],
        limit: int,
        window: float = 0.0,
        workers: int = 1,
        waiting: int = WAITING,
    ) -> None:
        self._work, self._limit, self._window, self._waiting = work, limit, window, waiting
        self._calls: deque[_Call[Item, Result, Info]] = deque()
        self._items = 0
        self._company = False
        self._closed = False
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._run, daemon=True, name=f"batch-{i}") for i in range(workers)]
        for thread in self._threads:
            thread.start()

    def submit(self, key: Hashable, items: Sequence[Item]) -> Future[tuple[list[Result], list[Info]]]:
        """Results in the order of `items`, and the infos of the calls that made them. Fault `retriever_busy` when too
        much waits already."""
        call: _Call[Item, Result, Info] = _Call(key, items, len(items), time.perf_counter())
        if not items:
            call.future.set_result(([], []))
            return call.future
        call.results = [None] * len(items)
        with self._changed:
            if self._closed or self._items + len(items) > max(self._waiting, len(items)):
                raise Fault(BUSY, f"{self._items} items wait already")
            self._calls.append(call)
            self._items += len(items)
            self._changed.notify(-(-len(items) // self._limit))
        return call.future

    @property
    def waiting(self) -> int:
        """Items that no worker has taken yet."""
        return self._items

    def close(self) -> None:
        """End the threads; what waits fails with `retriever_busy`."""
        with self._changed:
            self._closed = True
            calls, self._items = list(self._calls), 0
            self._calls.clear()
            self._changed.notify_all()
        for call in calls:
            _fail(call, Fault(BUSY, "it is closing"))
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (pieces := self._next()) is not None:
            items = [item for call, first, last in pieces for item in call.items[first:last]]
            try:
                results, info = self._work(pieces[0][0].key, items)
            except BaseException as error:  # noqa: BLE001 (each caller raises it)
                for call, _, _ in pieces:
                    _fail(call, error)
                continue
            self._deliver(pieces, results, info)

    def _next(self) -> list[_Piece[Item, Result, Info]] | None:
        """The next items to work on, of one key; None when closed."""
        with self._changed:
            while not self._calls and not self._closed:
                self._changed.wait()
            self._gather()
            if self._closed:
                return None
            pieces: list[_Piece[Item, Result, Info]] = []
            room, later = self._limit, deque[_Call[Item, Result, Info]]()
            while self._calls and room:
                call = self._calls.popleft()
                if pieces and call.key != pieces[0][0].key:
                    later.append(call)
                    continue
                first = call.taken
                call.taken = min(len(call.items), first + room)
                room -= call.taken - first
                pieces.append((call, first, call.taken))
                if call.taken < len(call.items):
                    later.append(call)
            self._calls.extendleft(reversed(later))
            self._items -= self._limit - room
            self._company = len(pieces) > 1
            return pieces

    def _gather(self) -> None:
        """Wait for company, if there was some lately."""
        while self._window and self._company and self._calls and not self._closed and self._items < self._limit:
            left = self._calls[0].at + self._window - time.perf_counter()
            if left <= 0:
                break
            self._changed.wait(left)
        while not self._calls and not self._closed:  # another worker took them meanwhile
            self._changed.wait()

    def _deliver(self, pieces: list[_Piece[Item, Result, Info]], results: Sequence[Result], info: Info) -> None:
        at, done = 0, []
        with self._changed:
            for call, first, last in pieces:
                call.results[first:last] = results[at : at + last - first]
                at += last - first
                call.left -= last - first
                call.infos.append(info)
                if not call.left:
                    done.append(call)
        for call in done:
            if not call.future.done():
                call.future.set_result((call.results, call.infos))


def _fail(call: _Call[Any, Any, Any], error: BaseException) -> None:
    if not call.future.done():
        call.future.set_exception(error)
