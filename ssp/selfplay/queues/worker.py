"""What a queue is asked for (`ssp.selfplay.queues.queue.Queue` answers)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ssp.selfplay.queues.leases import Ticket


class QueueWorker(Protocol):
    """A queue of references (`ssp.selfplay.queues.leases`)."""

    async def put(self, tickets: Sequence[Ticket], wait: float = 0.0, again: bool = False, /) -> bool:
        """All tickets, or False when there was no room in time."""
        ...

    async def lease(self, key: str, items: int, seconds: float, order: int | None = None, /) -> list[Ticket]:
        """The oldest tickets by order, leased under `key` for `seconds`."""
        ...

    async def sweep(self, key: str, oldest: int, seconds: float, /) -> list[Ticket]:
        """Lease all tickets that are older than version `oldest`."""
        ...

    async def ack(self, key: str, /) -> list[str]:
        """Done with what `key` leased."""
        ...

    async def clear(self) -> None:
        """Forget everything."""
        ...
