"""The loop whose time jumps."""

from __future__ import annotations

import asyncio

import pytest

from ssp.base.errors import InvariantError
from ssp.capacity.plan import clock


def test_timers_come_in_their_order_and_take_no_time() -> None:
    heard: list[tuple[str, float]] = []

    async def nap(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        heard.append((name, asyncio.get_running_loop().time()))

    async def main() -> None:
        await asyncio.gather(nap("c", 3e6), nap("a", 0.5), nap("b", 0.75))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 10)
        heard.append(("d", asyncio.get_running_loop().time()))

    clock.run(main())
    assert heard == [("a", 0.5), ("b", 0.75), ("c", 3e6), ("d", 3e6 + 10)]


def test_a_deadlock_is_an_error() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(InvariantError, match="nothing will ever happen"):
        clock.run(main())
