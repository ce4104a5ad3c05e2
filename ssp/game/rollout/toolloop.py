"""Loops and threads in which the functions of tools run, which may block."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any

Ran = tuple[Any, BaseException | None]
"""The result of work, or what it raised. An exit is kept too: raised in a loop it would end that."""


def in_a_thread(work: Callable[[], Any]) -> Future[Ran]:
    """Run `work` in a thread of its own, for which the process does not wait when it ends."""
    future: Future[Ran] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            ran: Ran = work(), None
        except BaseException as error:
            ran = None, error
        future.set_result(ran)

    threading.Thread(target=run, daemon=True, name="ssp-tool").start()
    return future


async def on_loop(work: Awaitable[Any], of: str) -> Ran:
    """Run a user's coroutine on `loop(of)`."""

    async def run() -> Ran:
        try:
            return await work, None
        except BaseException as error:
            return None, error

    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(), loop(of)))


@lru_cache
def loop(of: str = "") -> asyncio.AbstractEventLoop:
    """This process's loop of tools, in a thread of its own. `of`: a file, whose functions have a
    loop apart, which they may block."""
    made = asyncio.new_event_loop()
    made.set_default_executor(ThreadPoolExecutor(64))  # searches of agents wait there
    threading.Thread(target=made.run_forever, daemon=True, name="ssp-tools").start()
    return made


def wait(work: Any) -> Any:
    """The result of a coroutine on that loop."""
    return asyncio.run_coroutine_threadsafe(work, loop()).result()
