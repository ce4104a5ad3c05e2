"""An event loop in simulated time: it never waits, and jumps to the next event."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from ssp.base.errors import InvariantError

T = TypeVar("T")


class _Jump(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise InvariantError("everybody waits for somebody: nothing will ever happen again")
        self.now += max(0.0, timeout)
        return []


def run_jumping(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end in simulated seconds, from 0 on."""
    jump = _Jump()
    loop = asyncio.SelectorEventLoop(jump)
    loop.time = lambda: jump.now  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main)
