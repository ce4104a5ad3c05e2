"""What looks after a run while it plays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from actors import restarts
from actors.program import Program
from actors.watch.deaths import Deaths
from ssp.config.schema import Config
from ssp.record.runfolder import RunFolder


@asynccontextmanager
async def supervised(
    cfg: Config, folder: RunFolder, program: Program, say: Callable[[str], None]
) -> AsyncIterator[None]:
    """Around a run's play. `say`: a line for the user, from any thread."""
    deaths = Deaths(folder.name, folder.path / "deaths.jsonl", restarts.of(cfg), program.at_death, say)
    task = asyncio.create_task(surely("death reports", deaths.watch(), say))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await surely("death reports", asyncio.to_thread(deaths.look), say)  # what the run may have ended by
        deaths.end()


async def surely(what: str, job: Awaitable[Any], say: Callable[[str], None]) -> None:
    """Do what a run can go on without: when it fails, that is said."""
    try:
        await job
    except Exception as error:
        say(f"no {what} any more: {error!r}")
