"""One queue as the coordinator sees it: ordered hand-over that survives the queue's death.

Owns the blocks that were put and not yet acknowledged. Promises that `take(key)` returns the block of `key` once it was
put, whatever happened to the queue in between (it is put again), and that waiting for the queue has a deadline. Waiting
for a block that nobody has put yet has none of its own: whoever makes it fails, and cancels the taker, or closes the
channel. Refuses to hold payloads: blocks carry references.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

from ssp.errors import Fault, SspError
from ssp.queues.leases import Ticket

WAIT = 2.0
"""Seconds that one call may wait inside the queue; a dead queue is noticed after that at the latest."""


class Caller(Protocol):
    """A crew of one queue (`ssp.selfplay.crew.Crew`)."""

    name: str

    async def call(self, worker: int, method: str, *args: Any) -> Any:
        """Call it. Raises Fault when it fails."""
        ...


class Channel:
    """`put`, `take`, `ack` by step number over a queue. `timeout`: seconds it may be full, or silent."""

    def __init__(self, crew: Caller, timeout: float) -> None:
        self.name = crew.name
        self._crew, self._timeout, self._wait = crew, timeout, min(WAIT, timeout)
        self._unacked: dict[int, Ticket] = {}
        self._arrived = asyncio.Condition()
        self._end: int | None = None

    async def put(self, key: int, block: Any, items: int, nbytes: int) -> None:
        """Hand over; waits while the queue is full, which holds the producing side back."""
        ticket = Ticket(str(key), key, block, items, nbytes)
        await self._insist("put", [ticket], self._wait)
        async with self._arrived:
            self._unacked[key] = ticket
            self._arrived.notify_all()

    async def take(self, key: int) -> Any | None:
        """The block of `key`; waits for it to be put. None when the channel was closed before `key`."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: key in self._unacked or (self._end is not None and key >= self._end))
        if key not in self._unacked:
            return None
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            try:
                leased = await self._crew.call(0, "lease", str(key), 1, self._timeout, key)
            except Fault:
                leased = []
            if leased:
                return leased[0].block
            await self._insist("put", [self._unacked[key]], self._wait)
        raise SspError(
            f"queue {self.name} did not hand over block {key} for {self._timeout:.0f} s: see its actor's log"
        )

    async def ack(self, key: int) -> None:
        """Done with `key`."""
        self._unacked.pop(key, None)
        await self._insist("ack", str(key))

    async def close(self, end: int) -> None:
        """Nothing will be put under `end` or any later key."""
        async with self._arrived:
            self._end = end
            self._arrived.notify_all()

    async def clear(self) -> None:
        """Forget everything and open again: the run went back to a checkpoint."""
        self._unacked.clear()
        self._end = None
        await self._insist("clear")

    async def _insist(self, method: str, *args: Any) -> None:
        """Call until the queue answers, and a put finds room: after a fault it may not have heard the call."""
        deadline, pause = time.monotonic() + self._timeout, 0.002
        while time.monotonic() < deadline:
            try:
                if await self._crew.call(0, method, *args) is not False:
                    return
            except Fault:  # it comes back empty, and hears this call again
                await asyncio.sleep(pause)
                pause = min(pause * 2, 0.25)
        call = " ".join([method, *[ticket.id for ticket in args[0]]] if method == "put" else [method, *args])
        why = "is a learner stuck?" if method == "put" else "see its actor's log"
        raise SspError(f"queue {self.name} did not answer {call} for {self._timeout:.0f} s: {why}")
