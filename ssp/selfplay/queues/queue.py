"""A queue that lets its callers wait: for room, for tickets. What an actor, or one process, runs.

Owns the two lines of waiting calls. Promises that a call waits here, once, instead of asking again with its tickets;
that those who wait for room get it in the order in which they came, however small a later put is; and that a call whose
time is up takes and leaves nothing. Refuses what `LeaseQueue` refuses.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ssp.selfplay.queues.leases import LeaseQueue, Ticket

_Waiting = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class Queue:
    """`LeaseQueue` with waits. `wait`: the seconds that a call may take until it answers that there was nothing."""

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self.state = LeaseQueue(max_items, max_bytes)
        self._putters: deque[_Waiting] = deque()
        self._takers: deque[_Waiting] = deque()
        self._alarm: asyncio.TimerHandle | None = None

    async def put(self, tickets: Sequence[Ticket], wait: float = 0.0, again: bool = False) -> bool:
        """See `LeaseQueue.put`; False when there was no room in time. What is put `again` waits for nobody."""
        line = deque[_Waiting]() if again else self._putters
        return bool(await self._served(line, lambda: self.state.put(tickets, again), wait))

    async def lease(
        self, key: str, items: int, seconds: float, order: int | None = None, wait: float = 0.0
    ) -> list[Ticket]:
        """See `LeaseQueue.lease`; [] when nothing came in time."""
        return await self._served(self._takers, lambda: self.state.lease(key, items, seconds, order), wait) or []

    def sweep(self, key: str, oldest: int, seconds: float) -> list[Ticket]:
        """See `LeaseQueue.sweep`."""
        return self.state.sweep(key, oldest, seconds)

    def ack(self, key: str) -> list[str]:
        """See `LeaseQueue.ack`."""
        gone = self.state.ack(key)
        self._serve()
        return gone

    def clear(self) -> None:
        """See `LeaseQueue.clear`. Who waits, waits in vain: an old put must not meet the new round of its number."""
        self.state.clear()
        for line in (self._putters, self._takers):
            while line:
                _tell(line.popleft()[1], None)

    def figures(self) -> dict[str, float]:
        """See `LeaseQueue.figures`."""
        return self.state.figures()

    async def _served(self, line: deque[_Waiting], attempt: Callable[[], Any], wait: float) -> Any:
        """What `attempt` gives once it gives something, in its turn; its last empty answer when the time is up."""
        if not line and (got := attempt()):
            self._serve()
            return got
        waiting: _Waiting = (attempt, asyncio.get_running_loop().create_future())
        line.append(waiting)
        self._serve()
        try:
            return await asyncio.wait_for(waiting[1], wait)
        except TimeoutError:
            return None
        finally:
            if waiting in line:
                line.remove(waiting)

    def _serve(self) -> None:
        """Give everyone who waits what there is now: a put makes tickets, an acknowledgement makes room."""
        while self._putters and _done(self._putters[0]):
            self._putters.popleft()
        for waiting in [waiting for waiting in self._takers if _done(waiting)]:
            self._takers.remove(waiting)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._takers and self.state.next_expiry < float("inf"):
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_at(self.state.next_expiry, self._serve)


def _done(waiting: _Waiting) -> bool:
    """Whether one who waits is served, failed, or has gone."""
    attempt, future = waiting
    if future.done():
        return True
    try:
        got = attempt()
    except Exception as error:
        future.set_exception(error)
        return True
    if got:
        future.set_result(got)
    return bool(got)


def _tell(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)
