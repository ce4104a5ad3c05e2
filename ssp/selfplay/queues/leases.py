"""The state of a queue: tickets in order, leases on them, a budget. Plain and synchronous; time comes in by a clock.

Owns who holds what until when. Promises that a put without room changes nothing, that a known id is never queued twice,
that a call repeated after a lost reply changes nothing and says the same, that a ticket whose lease expired is handed
out again, and that exactly one lease, the newest on a ticket, may acknowledge it. Refuses to look inside a block:
payloads are references.
"""

from __future__ import annotations

import sys
import time
from bisect import insort
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ssp.base.errors import InvariantError

REMEMBERED = 10_000
"""Ids of finished tickets, and keys of finished leases, that are still known; what is repeated later than that, the ledger
refuses."""


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
class _Held:
    """A ticket that is not acknowledged: since when, its place among equals, and the newest lease on it."""

    ticket: Ticket
    since: float
    place: tuple[int, int, str]
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
        self._line: list[tuple[int, int, str]] = []
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
        if not again and (items > self._max_items or nbytes > self._max_bytes):
            raise InvariantError(
                f"{items} items of {nbytes} bytes can never fit a queue of {self._max_items} items and "
                f"{self._max_bytes} bytes: raise queue.items or queue.bytes"
            )
        full = self._items + items > self._max_items or self._bytes + nbytes > self._max_bytes
        if fresh and full and not again:
            return False
        now = self._clock()
        for ticket in fresh.values():
            self._serial += 1
            held = self._held[ticket.id] = _Held(ticket, now, (ticket.order, self._serial, ticket.id))
            insort(self._line, held.place)
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
        known = self._leases.get(key)
        mine = list(known.ids) if known else self._choose(now, items, wanted)
        taken = set(mine)
        self._line = [place for place in self._line if place[2] not in taken]
        if known is None:
            for id_ in mine:
                self._hand_on(id_, key)
        if mine:
            self._leases[key] = _Lease(mine, now + seconds)
        return [self._held[id_].ticket for id_ in mine]

    def _choose(self, now: float, items: int, wanted: Callable[[Ticket], bool]) -> list[str]:
        self._expire(now)
        chosen: list[str] = []
        for _, _, id_ in self._line:
            ticket = self._held[id_].ticket
            if items <= 0 or (chosen and ticket.items > items):
                break
            if wanted(ticket):
                chosen.append(id_)
                items -= ticket.items
        return chosen

    def _hand_on(self, id_: str, key: str) -> None:
        """Give a ticket to a new lease; the one before, which expired, may not acknowledge it any more."""
        held = self._held[id_]
        before = self._leases.get(held.lease)
        if before is not None:
            before.ids.remove(id_)
            if not before.ids:
                self._finish(held.lease, [])
        held.lease = key

    def _expire(self, now: float) -> None:
        """Put the tickets of expired leases back at their places; the lease stays theirs until they are handed on."""
        for lease in self._leases.values():
            if lease.expires <= now:
                lease.expires = float("inf")
                for id_ in lease.ids:
                    insort(self._line, self._held[id_].place)

    def ack(self, key: str) -> list[str]:
        """The taker is done with what `key` leased: ids that were its own, and are gone now.

        Late, it is as good as in time while nobody else has leased the ticket; after that the ticket is the other's, and
        its id is missing in the answer.
        """
        if key in self._acked:
            return self._acked[key]
        lease = self._leases.get(key)
        if lease is None:
            return []
        if lease.expires == float("inf"):
            gone = set(lease.ids)
            self._line = [place for place in self._line if place[2] not in gone]
        for id_ in lease.ids:
            ticket = self._held.pop(id_).ticket
            self._items, self._bytes = self._items - ticket.items, self._bytes - ticket.nbytes
            _remember(self._done, id_, None)
        self._finish(key, list(lease.ids))
        return self._acked[key]

    def _finish(self, key: str, ids: list[str]) -> None:
        del self._leases[key]
        _remember(self._acked, key, ids)

    @property
    def next_expiry(self) -> float:
        """When the next lease expires, by the clock; infinity without one."""
        return min((lease.expires for lease in self._leases.values()), default=float("inf"))

    def figures(self) -> dict[str, float]:
        """`items`, `bytes`: what is here, leased or not; `leased`: tickets of running leases; `age`: seconds of the ticket
        that has been here longest."""
        return {
            "items": float(self._items),
            "bytes": float(self._bytes),
            "leased": float(len(self._held) - len(self._line)),
            "age": max((self._clock() - held.since for held in self._held.values()), default=0.0),
        }


def _remember(memory: OrderedDict[str, Any], key: str, value: Any) -> None:
    memory[key] = value
    if len(memory) > REMEMBERED:
        memory.popitem(last=False)
