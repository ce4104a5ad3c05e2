"""A crew: workers of one kind, called by number. The one seam between the game and its transport."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import Any, Protocol

PAYLOAD_METHODS = frozenset({"play", "update", "update_all", "weights", "again", "anchor_weights"})
"""Methods that return `(payload, report)`; every other method returns one small value."""


class Crew(Protocol):
    """Workers 0..size-1 of one kind."""

    name: str

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    async def call(self, worker: int, method: str, *args: Any) -> Any:
        """Call one worker. Raises Fault("<name>_died" | "<name>_deadline") when the worker fails."""
        ...


class LocalCrew:
    """Workers in this process; a call runs at once. Payload references are the payloads themselves."""

    def __init__(self, name: str, make: Callable[[int], Any], size: int = 1) -> None:
        self.name, self.size = name, size
        self._workers = [make(i) for i in range(size)]

    async def call(self, worker: int, method: str, *args: Any) -> Any:
        """Run the method and return its value."""
        answer = getattr(self._workers[worker], method)(*args)
        return await answer if isawaitable(answer) else answer


def split(items: Sequence[Any], parts: int) -> list[list[Any]]:
    """Contiguous, nearly equal parts in order, never an empty one (law 7: the split depends on counts only)."""
    parts = min(parts, len(items))
    if parts == 0:
        return []
    bounds = [round(i * len(items) / parts) for i in range(parts + 1)]
    return [list(items[a:b]) for a, b in zip(bounds, bounds[1:], strict=False)]
