"""A queue: tickets in order, leases on them, a budget (`LeaseQueue`), and callers that wait (`Queue`: an actor, or local).

A put without room changes nothing, and a known id is never queued twice. A call repeated after a lost reply changes
nothing and says the same. A ticket whose lease expired is handed out again, and exactly one lease, the newest on a ticket,
may acknowledge it. Those who wait for room get it in the order in which they came, however small a later put is; a call
whose time is up takes and leaves nothing.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from ssp.base.errors import InvariantError

REMEMBERED = 10_000
"""Ids of finished tickets, keys of finished leases that are known; what is repeated later, the ledger refuses."""


class Ticket(NamedTuple):
    """One block of a queue. `order`: the game, or round, that it belongs to; the lowest is handed out first. `version`: of
    the oldest model token in it, -1 for a block that does not age."""

    id: str
    order: int
    block: Any
    items: int
    nbytes: int
    version: int = -1


@dataclass
class _Held:  # a ticket that is not acknowledged, its number among all that came, and the newest lease on it
    ticket: Ticket
    since: float
    serial: int
    lease: str = ""


@dataclass
class _Lease:
    ids: list[str]
    expires: float


class LeaseQueue:
    """Tickets within `max_items` and `max_bytes`, leased ones included."""

    def __init__(self, max_items: int, max_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_items, self._max_bytes, self._clock = max_items, max_bytes, clock
        self.clear()

    def clear(self) -> None:
        """Forget everything: the run went back to a checkpoint."""
        self._held: dict[str, _Held] = {}
        self._leases: dict[str, _Lease] = {}
        self._done: OrderedDict[str, None] = OrderedDict()
        self._acked: OrderedDict[str, list[str]] = OrderedDict()
        self._items = self._bytes = self._serial = 0

    def put(self, tickets: Sequence[Ticket], again: bool = False) -> bool:
        """All of `tickets`, or False when there is no room for those that are new. InvariantError when there never can be.

        `again`: they had found room before the queue died. Another one may have it now, and wait for these to go first.
        """
        fresh = {t.id: t for t in tickets if t.id not in self._held and t.id not in self._done}
        items, nbytes = sum(t.items for t in fresh.values()), sum(t.nbytes for t in fresh.values())
        if fresh and not again:
            if items > self._max_items or nbytes > self._max_bytes:
                raise InvariantError(
                    f"{items} items of {nbytes} bytes can never fit a queue of {self._max_items} items and "
                    f"{self._max_bytes} bytes"
                )
            if self._items + items > self._max_items or self._bytes + nbytes > self._max_bytes:
                return False
        now = self._clock()
        for serial, ticket in enumerate(fresh.values(), self._serial):
            self._held[ticket.id] = _Held(ticket, now, serial)
        self._serial += len(fresh)
        self._items, self._bytes = self._items + items, self._bytes + nbytes
        return True

    def lease(self, key: str, items: int, seconds: float, order: int | None = None) -> list[Ticket]:
        """The oldest tickets by order, up to `items` items but at least one if there is one; with `order`, only of that.

        `key` names this call: repeated, it gives the same tickets again, for `seconds` from now.
        """
        return self._take(key, seconds, items, lambda t: order is None or t.order == order)

    def sweep(self, key: str, oldest: int, seconds: float) -> list[Ticket]:
        """Lease all tickets that are older than version `oldest`: whoever sweeps accounts for them, then acknowledges."""
        # Not `max_items`: what was put in again after a death may be more.
        return self._take(key, seconds, sys.maxsize, lambda t: 0 <= t.version < oldest)

    def _take(self, key: str, seconds: float, items: int, wanted: Callable[[Ticket], bool]) -> list[Ticket]:
        if key in self._acked:
            return []
        now = self._clock()
        if key not in self._leases:
            chosen = self._choose(now, items, wanted)
            if not chosen:
                return []
            for held in chosen:  # the lease before, which expired, may not acknowledge it any more
                before = self._leases.get(held.lease)
                if before is not None:
                    before.ids.remove(held.ticket.id)
                    if not before.ids:
                        self._finish(held.lease, [])
                held.lease = key
            self._leases[key] = _Lease([held.ticket.id for held in chosen], now)
        lease = self._leases[key]
        lease.expires = now + seconds
        return [self._held[id_].ticket for id_ in lease.ids]

    def _choose(self, now: float, items: int, wanted: Callable[[Ticket], bool]) -> list[_Held]:
        chosen: list[_Held] = []
        for held in sorted(self._held.values(), key=lambda held: (held.ticket.order, held.serial)):
            if self._leased(held, now):
                continue
            if items <= 0 or (chosen and held.ticket.items > items):
                break
            if wanted(held.ticket):
                chosen.append(held)
                items -= held.ticket.items
        return chosen

    def _leased(self, held: _Held, now: float) -> bool:
        return held.lease in self._leases and self._leases[held.lease].expires > now

    def ack(self, key: str) -> list[str]:
        """The taker is done with what `key` leased: ids that were its own, and are gone now.

        Late, it is as good as in time while nobody else has leased the ticket; after that the ticket is the other's, and
        its id is missing in the answer.
        """
        if key not in self._acked:
            if key not in self._leases:
                return []
            ids = self._leases[key].ids
            for id_ in ids:
                ticket = self._held.pop(id_).ticket
                self._items, self._bytes = self._items - ticket.items, self._bytes - ticket.nbytes
                _remember(self._done, id_, None)
            self._finish(key, ids)
        return self._acked[key]

    def _finish(self, key: str, ids: list[str]) -> None:
        del self._leases[key]
        _remember(self._acked, key, ids)

    @property
    def next_expiry(self) -> float:
        """When the next running lease expires, by the clock; infinity without one."""
        now = self._clock()
        return min((lease.expires for lease in self._leases.values() if lease.expires > now), default=float("inf"))

    def figures(self) -> dict[str, float]:
        """`items`, `bytes`: what is here; `leased`: tickets of running leases; `age`: seconds of the oldest ticket."""
        now = self._clock()
        return {
            "items": float(self._items),
            "bytes": float(self._bytes),
            "leased": float(sum(self._leased(held, now) for held in self._held.values())),
            "age": max((now - held.since for held in self._held.values()), default=0.0),
        }


def _remember(memory: OrderedDict[str, Any], key: str, value: Any) -> None:
    memory[key] = value
    if len(memory) > REMEMBERED:
        memory.popitem(last=False)


_Waiting = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class Queue:
    """A `LeaseQueue` for callers elsewhere. `wait`: seconds until a call answers that there was nothing."""

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

    async def sweep(self, key: str, oldest: int, seconds: float) -> list[Ticket]:
        """See `LeaseQueue.sweep`."""
        return self.state.sweep(key, oldest, seconds)

    async def ack(self, key: str) -> list[str]:
        """See `LeaseQueue.ack`."""
        gone = self.state.ack(key)
        self._serve()
        return gone

    async def clear(self) -> None:
        """See `LeaseQueue.clear`. Who waits, waits in vain: an old put must not meet the new round of its number."""
        self.state.clear()
        for _, future in [*self._putters, *self._takers]:
            if not future.done():
                future.set_result(None)

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
        with suppress(TimeoutError):
            return await asyncio.wait_for(waiting[1], wait)

    def _serve(self) -> None:
        """Give everyone who waits what there is now, after a put or an acknowledgement; who has gone is forgotten."""
        while self._putters and _done(self._putters[0]):
            self._putters.popleft()
        for waiting in [waiting for waiting in self._takers if _done(waiting)]:
            self._takers.remove(waiting)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._takers and (expiry := self.state.next_expiry) < float("inf"):
            self._alarm = asyncio.get_running_loop().call_at(expiry, self._serve)


def _done(waiting: _Waiting) -> bool:
    """Whether one who waits is served, failed, or has gone."""
    attempt, future = waiting
    if not future.done():
        try:
            got = attempt()
        except Exception as error:
            future.set_exception(error)
        else:
            if got:
                future.set_result(got)
    return future.done()
