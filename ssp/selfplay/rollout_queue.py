"""The batches of one learning role, between the round that settles them and the learner that trains
them.

Owns the batches that are not trained yet: references to blocks in the object store, never a payload
(law 10). Promises that a batch is taken by its number, that `put` waits for room in items and in
bytes (law 9), and that a batch counts against both bounds until it is trained. The queue lives in
the coordinator's process and dies with the run, which goes back to a checkpoint."""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from ssp.base.errors import InvariantError, SspError
from ssp.base.values import Values
from ssp.selfplay.records import TrainBatch

PATIENCE = 600.0
"""Seconds that a queue may be full: the time of the slowest update that still makes progress."""


class Waiting(NamedTuple):
    """A batch in the queue, and the time when it came, in the clock's seconds."""

    batch: TrainBatch
    since: float


class RolloutQueue:
    """`put`, `take` and `done` by number of the round. `patience`: seconds that `put` waits for
    room."""

    def __init__(
        self,
        role: str,
        max_items: int,
        max_bytes: int,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._role = role
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._patience = patience
        self._clock = clock
        self._batches: dict[int, Waiting] = {}
        self._end: int | None = None
        self._moved = asyncio.Condition()

    async def put(self, batch: TrainBatch) -> None:
        """Hand over the batch of a round, and wait while there is no room: that holds rounds back.

        InvariantError for a batch that can never fit. SspError without room within the queue's
        patience."""
        if len(batch.samples) > self._max_items or batch.nbytes > self._max_bytes:
            size = f"{len(batch.samples)} episodes of {batch.nbytes} bytes"
            room = f"{self._max_items} episodes and {self._max_bytes} bytes"
            raise InvariantError(f"{size} can never fit a queue of {room}")
        try:
            async with asyncio.timeout(self._patience), self._moved:
                await self._moved.wait_for(lambda: self._has_room(batch))
                self._batches[batch.number] = Waiting(batch, self._clock())
                self._moved.notify_all()
        except TimeoutError as error:
            full = f"the queue of {self._role} had no room for round {batch.number}"
            raise SspError(f"{full} for {self._patience:.0f} s: is its learner stuck?") from error

    async def take(self, number: int) -> TrainBatch | None:
        """Wait for the batch of round `number`; None when the queue is closed before it.

        It has no deadline: whoever makes the batch fails and cancels the taker, or closes the
        queue."""

        def is_decided() -> bool:
            is_over = self._end is not None and number >= self._end
            return number in self._batches or is_over

        async with self._moved:
            await self._moved.wait_for(is_decided)
            waiting = self._batches.get(number)
        return None if waiting is None else waiting.batch

    async def done(self, number: int) -> None:
        """Forget the batch of round `number`: it is trained, and its room is free."""
        async with self._moved:
            self._batches.pop(number, None)
            self._moved.notify_all()

    async def close(self, end: int) -> None:
        """Say that no batch of round `end` or of a later one will come."""
        async with self._moved:
            self._end = end
            self._moved.notify_all()

    def clear(self) -> None:
        """Forget everything and open again: the run went back to a checkpoint, and nobody waits."""
        self._batches.clear()
        self._end = None

    def figures(self) -> Values:
        """`items`: episodes here. `bytes`: size of their payloads. `age`: seconds that the oldest
        batch has waited."""
        now = self._clock()
        items, nbytes = self._size()
        oldest = min((waiting.since for waiting in self._batches.values()), default=now)
        return {"items": float(items), "bytes": float(nbytes), "age": now - oldest}

    def _size(self) -> tuple[int, int]:
        """Episodes and bytes that are here."""
        items = nbytes = 0
        for waiting in self._batches.values():
            items += len(waiting.batch.samples)
            nbytes += waiting.batch.nbytes
        return items, nbytes

    def _has_room(self, batch: TrainBatch) -> bool:
        """Whether a batch fits beside those that are here."""
        items, nbytes = self._size()
        items += len(batch.samples)
        nbytes += batch.nbytes
        return items <= self._max_items and nbytes <= self._max_bytes
