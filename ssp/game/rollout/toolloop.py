"""Where the functions of tools run: in loops and threads of their own, which may block."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any

Ran = tuple[Any, BaseException | None]
"""What work returned, or what it raised: an exit that is raised into a loop ends that."""


def in_a_thread(work: Callable[[], Any]) -> Future[Ran]:
    """`work` in a thread of its own, which the process does not wait for when it ends."""
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


async def awaited(work: Awaitable[Any]) -> Ran:
    """What a user's coroutine comes to."""
    try:
        return await work, None
    except BaseException as error:
        return None, error


@lru_cache
def loop(of: str = "") -> asyncio.AbstractEventLoop:
    """This process's loop of tools, in a thread of its own; or that `of` the functions of one file,
    which may block it."""
    made = asyncio.new_event_loop()
    made.set_default_executor(ThreadPoolExecutor(64))  # searches of agents wait there
    threading.Thread(target=made.run_forever, daemon=True, name="ssp-tools").start()
    return made


def wait(work: Any) -> Any:
    """The result of a coroutine on that loop."""
    return asyncio.run_coroutine_threadsafe(work, loop()).result()
