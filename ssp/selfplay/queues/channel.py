"""One queue as the coordinator sees it: ordered hand-over that survives the queue's death.

`take(key)` returns the blocks of `key` once they were put, whatever happened to the queue in between (they are put again).
Waiting for the queue has a deadline; waiting for blocks that nobody has put yet has none: whoever makes them fails, and
cancels the taker, or closes the channel."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from ssp.base.crew import Crew
from ssp.base.errors import Fault, SspError
from ssp.selfplay.queues.queue import Queue, Ticket

T = TypeVar("T")

WAIT = 2.0
"""Seconds that one call may wait inside the queue; a dead queue is noticed after that at the latest."""
PATIENCE = 600.0
"""Seconds that a queue may be full, or silent: the slowest round that still makes progress."""


class Channel:
    """`put`, `take`, `ack` by step number over a queue. `timeout`: seconds it may be full, or silent."""

    def __init__(self, crew: Crew[Queue], timeout: float = PATIENCE) -> None:
        self.name = crew.name
        self._queue, self._timeout, self._wait = crew.first, timeout, min(WAIT, timeout)
        self._unacked: dict[int, Sequence[Ticket]] = {}
        self._arrived = asyncio.Condition()
        self._end: int | None = None

    async def put(self, key: int, tickets: Sequence[Ticket]) -> None:
        """Hand over all tickets of order `key` at once; waits while the queue is full, which holds producers back."""
        await self._put(tickets)
        async with self._arrived:
            self._unacked[key] = tickets
            self._arrived.notify_all()

    async def take(self, key: int) -> list[Any] | None:
        """The blocks of `key`, in order of their putting; waits for that. None when the channel was closed before `key`."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: key in self._unacked or (self._end is not None and key >= self._end))
        if key not in self._unacked:
            return None
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            try:
                leased = await self._queue.lease(str(key), sys.maxsize, key)
            except Fault:
                leased = []
            if leased:
                return [ticket.block for ticket in leased]
            await self._put(self._unacked[key], again=True)
        raise SspError(
            f"queue {self.name} did not hand over block {key} for {self._timeout:.0f} s: see its actor's log"
        )

    async def ack(self, key: int) -> None:
        """Done with `key`."""
        self._unacked.pop(key, None)
        await self._insist(f"ack {key}", lambda: self._queue.ack(str(key)))

    async def sweep(self, oldest: int, account: Callable[[Any], Awaitable[None]]) -> None:
        """Take out what waits and is older than version `oldest`; `account` hears of each block before that goes."""
        if not any(0 <= ticket.version < oldest for tickets in self._unacked.values() for ticket in tickets):
            return
        name = f"older than {oldest}"
        for swept in await self._insist(f"sweep {name}", lambda: self._queue.sweep(name, oldest)):
            await account(swept.block)
            self._unacked[swept.order] = [kept for kept in self._unacked[swept.order] if kept.id != swept.id]
        await self._insist(f"ack {name}", lambda: self._queue.ack(name))

    async def close(self, end: int) -> None:
        """Nothing will be put under `end` or any later key."""
        async with self._arrived:
            self._end = end
            self._arrived.notify_all()

    async def clear(self) -> None:
        """Forget everything and open again: the run went back to a checkpoint."""
        self._unacked.clear()
        self._end = None
        await self._insist("clear", self._queue.clear)

    async def _put(self, tickets: Sequence[Ticket], again: bool = False) -> None:
        call = f"put {tickets[0].id}"
        await self._insist(call, lambda: self._queue.put(tickets, self._wait, again), "is a learner stuck?")

    async def _insist(self, call: str, ask: Callable[[], Awaitable[T]], why: str = "see its actor's log") -> T:
        """Call until the queue answers, and a put finds room: after a fault it may not have heard the call."""
        deadline, pause = time.monotonic() + self._timeout, 0.002
        while time.monotonic() < deadline:
            try:
                answer = await ask()
                if answer is not False:
                    return answer
            except Fault:  # it comes back empty, and hears this call again
                await asyncio.sleep(pause)
                pause = min(pause * 2, 0.25)
        raise SspError(f"queue {self.name} did not answer {call} for {self._timeout:.0f} s: {why}")
