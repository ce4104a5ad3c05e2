"""Everything that looks after a run while it plays: deaths, stalls, pools that change, faults on purpose.

Owns their start and end. Promises that supervision which fails is said, and never ends the run. Refuses to know what each
of them does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from actors import restarts
from actors.program import Program
from actors.watch.chaos import Chaos
from actors.watch.deaths import Deaths
from actors.watch.elastic import Elastic
from actors.watch.stall import Stall
from ssp.config.schema import Config
from ssp.runfolder import RunFolder
from ssp.selfplay.report import Report


@asynccontextmanager
async def supervised(
    cfg: Config, folder: RunFolder, program: Program, report: Report, say: Callable[[str], None]
) -> AsyncIterator[None]:
    """Around a run's play. `say`: a line for the user, from any thread."""
    deaths = Deaths(folder.name, folder.path / "deaths.jsonl", restarts.of(cfg), program.at_death, say)
    jobs = {
        "death reports": deaths.watch(),
        "table of waits": Stall(cfg.telemetry.stall, program, report, folder.path / "waits.txt", say).watch(),
        "elastic pools": Elastic(cfg, program, deaths, say).watch(),
        "chaos": Chaos(cfg.chaos.faults, folder.name, deaths, report, say).watch(),
    }
    tasks = [asyncio.create_task(surely(what, job, say)) for what, job in jobs.items()]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await surely("death reports", asyncio.to_thread(deaths.look), say)  # what the run may have ended by
        deaths.end()


async def surely(what: str, job: Awaitable[Any], say: Callable[[str], None]) -> None:
    """Do what a run can go on without: when it fails, that is said."""
    try:
        await job
    except Exception as error:
        say(f"no {what} any more: {error!r}")
