"""A bounded hand-over of blocks, by key.

Owns a byte and an item budget. Promises that a put is refused (never blocks, never grows) when there is no room, that a
repeated put of a key changes nothing, and that taking is repeatable until the taker acknowledges: a lost reply loses
nothing. Refuses to look inside an item: payloads are references.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ssp.errors import InvariantError


class BoundedQueue:
    """Blocks under integer keys. One block larger than the whole budget is a configuration error and raises."""

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self._max_items, self._max_bytes = max_items, max_bytes
        self._blocks: OrderedDict[int, tuple[Any, int, int]] = OrderedDict()
        self._items = self._bytes = 0

    def put(self, key: int, block: Any, items: int, nbytes: int) -> bool:
        """False when there is no room now."""
        if items > self._max_items or nbytes > self._max_bytes:
            raise InvariantError(
                f"a block of {items} items and {nbytes} bytes can never fit a queue of {self._max_items} items and "
                f"{self._max_bytes} bytes: raise queue.items or queue.bytes"
            )
        if key in self._blocks:
            return True
        if self._items + items > self._max_items or self._bytes + nbytes > self._max_bytes:
            return False
        self._blocks[key] = (block, items, nbytes)
        self._items, self._bytes = self._items + items, self._bytes + nbytes
        return True

    def take(self, key: int) -> Any | None:
        """The block of `key`, or None when it is not here. It stays until `ack`."""
        held = self._blocks.get(key)
        return None if held is None else held[0]

    def ack(self, key: int) -> None:
        """Forget a block whose taker is done with it; unknown keys are ignored (a repeated ack)."""
        held = self._blocks.pop(key, None)
        if held is not None:
            _, items, nbytes = held
            self._items, self._bytes = self._items - items, self._bytes - nbytes

    def clear(self) -> None:
        """Drop everything: the run went back to a checkpoint."""
        self._blocks.clear()
        self._items = self._bytes = 0
