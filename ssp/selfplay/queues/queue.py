"""A queue: tickets in order, leases on them, a budget (`LeaseQueue`), and callers that wait (`Queue`: an actor, or local).

A put without room changes nothing, and a known id is never queued twice. What is leased is its taker's until that is
acknowledged: a call repeated after a lost reply gives the same tickets, and nobody else gets them. Those who wait for room
get it in the order in which they came, however small a later put is; a call whose time is up takes and leaves nothing."""

import asyncio
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Any, NamedTuple

from ssp.base.errors import InvariantError

REMEMBERED = 10_000
"""Ids of finished tickets that are known; what is put again later, the ledger refuses."""


class Ticket(NamedTuple):
    """One block of a queue. `order`: the game, or round, that it belongs to; the lowest is handed out first. `version`: of
    the oldest model token in it, -1 for a block that does not age."""

    id: str
    order: int
    block: Any
    items: int
    nbytes: int
    version: int = -1


class LeaseQueue:
    """Tickets within `max_items` and `max_bytes`, leased ones included."""

    def __init__(self, max_items: int, max_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_items, self._max_bytes, self._clock = max_items, max_bytes, clock
        self.clear()

    def clear(self) -> None:
        """Forget everything: the run went back to a checkpoint."""
        self._tickets: dict[str, Ticket] = {}
        self._since: dict[str, float] = {}
        self._leases: dict[str, list[str]] = {}
        self._done: dict[str, None] = {}

    def put(self, tickets: Sequence[Ticket], again: bool = False) -> bool:
        """All of `tickets`, or False when there is no room for the new ones. InvariantError when there never can be.
        `again`: they had room before the queue died; another one may have it now, and wait for these to go first."""
        fresh = {t.id: t for t in tickets if t.id not in self._tickets and t.id not in self._done}
        if fresh and not again:
            items, nbytes = _size(fresh.values())
            if items > self._max_items or nbytes > self._max_bytes:
                raise InvariantError(
                    f"{items} items of {nbytes} bytes can never fit a queue of {self._max_items} items and "
                    f"{self._max_bytes} bytes"
                )
            held_items, held_bytes = _size(self._tickets.values())
            if held_items + items > self._max_items or held_bytes + nbytes > self._max_bytes:
                return False
        self._tickets |= fresh
        self._since |= dict.fromkeys(fresh, self._clock())
        return True

    def lease(self, key: str, items: int, order: int | None = None) -> list[Ticket]:
        """The oldest tickets by order that nobody has, up to `items` items but at least one if there is one; with `order`,
        only of that. `key` names this call: repeated, it gives the same tickets again."""
        return self._take(key, items, lambda ticket: order is None or ticket.order == order)

    def sweep(self, key: str, oldest: int) -> list[Ticket]:
        """Lease all tickets that are older than version `oldest`: whoever sweeps accounts for them, then acknowledges."""
        # Not `max_items`: what was put in again after a death may be more.
        return self._take(key, sys.maxsize, lambda ticket: 0 <= ticket.version < oldest)

    def _take(self, key: str, items: int, wanted: Callable[[Ticket], bool]) -> list[Ticket]:
        if key in self._leases:
            return [self._tickets[id_] for id_ in self._leases[key]]
        leased = {id_ for ids in self._leases.values() for id_ in ids}
        chosen: list[Ticket] = []
        for ticket in sorted(self._tickets.values(), key=lambda ticket: ticket.order):  # of one order, as they came
            if ticket.id not in leased:
                if items <= 0 or (chosen and ticket.items > items):
                    break
                if wanted(ticket):
                    chosen.append(ticket)
                    items -= ticket.items
        if chosen:
            self._leases[key] = [ticket.id for ticket in chosen]
        return chosen

    def ack(self, key: str) -> list[str]:
        """The taker is done with what `key` leased: the ids that are gone now."""
        ids = self._leases.pop(key, [])
        for id_ in ids:
            del self._tickets[id_], self._since[id_]
            self._done[id_] = None
        for id_ in list(self._done)[:-REMEMBERED]:
            del self._done[id_]
        return ids

    def figures(self) -> dict[str, float]:
        """`items`, `bytes`: what is here; `leased`: tickets with a taker; `age`: seconds of the oldest ticket."""
        items, nbytes = _size(self._tickets.values())
        return {
            "items": float(items),
            "bytes": float(nbytes),
            "leased": float(sum(map(len, self._leases.values()))),
            "age": self._clock() - min(self._since.values(), default=self._clock()),
        }


def _size(tickets: Collection[Ticket]) -> tuple[int, int]:
    return sum(ticket.items for ticket in tickets), sum(ticket.nbytes for ticket in tickets)


class Queue:
    """A `LeaseQueue` for callers elsewhere. `wait`: seconds until a call answers that there was nothing."""

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self.state = LeaseQueue(max_items, max_bytes)
        self._moved, self._line, self._era = asyncio.Condition(), asyncio.Lock(), 0

    async def put(self, tickets: Sequence[Ticket], wait: float = 0.0, again: bool = False) -> bool:
        """See `LeaseQueue.put`; False when there was no room in time. What is put `again` waits for nobody."""
        line = nullcontext() if again else self._line
        return bool(await self._served(line, lambda: self.state.put(tickets, again), wait))

    async def lease(self, key: str, items: int, order: int | None = None, wait: float = 0.0) -> list[Ticket]:
        """See `LeaseQueue.lease`; [] when nothing came in time."""
        return await self._served(nullcontext(), lambda: self.state.lease(key, items, order), wait) or []

    async def sweep(self, key: str, oldest: int) -> list[Ticket]:
        """See `LeaseQueue.sweep`."""
        return self.state.sweep(key, oldest)

    async def ack(self, key: str) -> list[str]:
        """See `LeaseQueue.ack`."""
        async with self._moved:
            self._moved.notify_all()
            return self.state.ack(key)

    async def clear(self) -> None:
        """See `LeaseQueue.clear`. Who waits, waits in vain: an old put must not meet the new round of its number."""
        async with self._moved:
            self._era += 1
            self._moved.notify_all()
            self.state.clear()

    def figures(self) -> dict[str, float]:
        """See `LeaseQueue.figures`."""
        return self.state.figures()

    async def _served(self, line: AbstractAsyncContextManager[None], attempt: Callable[[], Any], wait: float) -> Any:
        """What `attempt` gives once it gives something, in its turn in `line`; None when the time is up."""
        era = self._era
        with suppress(TimeoutError):
            async with asyncio.timeout(wait), line, self._moved:
                while self._era == era:
                    if got := attempt():
                        self._moved.notify_all()
                        return got
                    await self._moved.wait()
