"""Work under way, shared by all who ask for the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Flights(Generic[Key, Value]):
    """Safe in several threads."""

    def __init__(self) -> None:
        self._flying: dict[Key, Future[Value]] = {}
        self._lock = threading.Lock()

    def run(
        self, keys: Sequence[Key], work: Callable[[list[Key]], Sequence[Value]], seconds: float
    ) -> dict[Key, Value]:
        """The value of each key: `work` makes those that nobody works on, and gives them in their order.

        Raises what the work for a key raised, and TimeoutError when another caller's takes longer than `seconds`.
        """
        with self._lock:
            wanted = {key: self._flying.get(key) for key in keys}
            mine: dict[Key, Future[Value]] = {key: Future() for key, other in wanted.items() if other is None}
            self._flying.update(mine)
        if mine:
            self._work(mine, work)
        return {key: (other or mine[key]).result(seconds) for key, other in wanted.items()}

    def _work(self, mine: dict[Key, Future[Value]], work: Callable[[list[Key]], Sequence[Value]]) -> None:
        try:
            for future, value in zip(mine.values(), work(list(mine)), strict=True):
                future.set_result(value)
        except BaseException as error:  # noqa: BLE001 (each caller raises it)
            for future in mine.values():
                if not future.done():
                    future.set_exception(error)
        finally:
            with self._lock:
                for key in mine:
                    del self._flying[key]
