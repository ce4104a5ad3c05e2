"""Faults that a test declares (`chaos.faults`), made while a run plays.

Owns the making of faults. Promises that only processes of this run's own actors are touched, and of the driver's node no
more than these; that each fault is said and stands in deaths.jsonl as chaos; and that a fault whose actor is just away waits
for it. Refuses to judge what comes of it: the laws do (`ssp doctor --ledger`).
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import ray

from actors.watch.deaths import Deaths, Seen
from ssp.config.cluster import FaultConfig
from ssp.selfplay.report import Report

EVERY = 0.1
"""Seconds between two looks at the step."""

AWAY = 300.0
"""Seconds that an actor, or another node, gets to be there before the fault is left out."""


class Chaos:
    """The faults of one run, in the order of their steps."""

    def __init__(
        self, faults: Sequence[FaultConfig], run: str, deaths: Deaths, report: Report, say: Callable[[str], None]
    ) -> None:
        self._due = sorted(faults, key=lambda fault: fault.at_step)
        self._run, self._deaths, self._report, self._say = run, deaths, report, say

    async def watch(self) -> None:
        """Make each fault when its step is done."""
        stalls: list[asyncio.Task[None]] = []
        for fault in self._due:
            while self._report.step < fault.at_step:
                await asyncio.sleep(EVERY)
            while (there := await self._found(fault.who)) is not None:
                if fault.do == "stall":
                    stalls.append(asyncio.create_task(self._stall(there, fault.seconds)))
                    break
                with suppress(
                    ProcessLookupError
                ):  # it died before the signal came: the next process of that name, then
                    await asyncio.to_thread(self._strike, fault.do, there)
                    break
            else:
                self._say(f"chaos: {fault.who or 'no other node'} was there within {AWAY:g} s; {fault.do} is left out")
        await asyncio.gather(*stalls)

    async def _found(self, who: str) -> Seen | None:
        """The actor's process, once it lives; without a name, any that is on another node than the driver."""
        home = ray.get_runtime_context().get_node_id()
        for _ in range(round(AWAY / EVERY)):
            await asyncio.to_thread(self._deaths.look)
            for seen in reversed(self._deaths.seen.values()):
                struck = self._deaths.chaos.get(seen.pid) == "kill"  # which is not seen in the table at once
                if seen.alive and not struck and (seen.actor == who if who else seen.node != home):
                    return seen
            await asyncio.sleep(EVERY)
        return None

    def _strike(self, do: str, there: Seen) -> None:
        if do == "node":
            self._end_node(there)
            return
        self._say(f"chaos: {do} {there.actor}, process {there.pid}")
        if do == "kill":
            self._deaths.chaos[there.pid] = do
            self._deaths.asked(there.node, "signal", there.pid, signal.SIGKILL)
        else:
            handle: Any = ray.get_actor(f"{self._run}-{there.actor}")
            ray.get(handle.__ray_call__.remote(fill), timeout=AWAY)

    def _end_node(self, there: Seen) -> None:
        on_it = [seen for seen in self._deaths.seen.values() if seen.alive and seen.node == there.node]
        self._say(f"chaos: node {there.node[:8]} with {', '.join(seen.actor for seen in on_it)}")
        self._deaths.chaos |= {seen.pid: "node" for seen in on_it}
        self._deaths.asked(there.node, "end_node")

    async def _stall(self, there: Seen, seconds: float) -> None:
        """The crew may find that it hangs, and end it, before it goes on."""
        self._say(f"chaos: stall {there.actor}, process {there.pid}, for {seconds:g} s")
        self._deaths.chaos[there.pid] = "stall"
        with suppress(ProcessLookupError):  # it may die meanwhile
            await asyncio.to_thread(self._deaths.asked, there.node, "signal", there.pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(seconds)
            finally:
                seen = self._deaths.place(there.actor)
                if seen is not None and seen.alive and seen.pid == there.pid:
                    await asyncio.to_thread(self._deaths.asked, there.node, "signal", there.pid, signal.SIGCONT)
                    self._deaths.chaos.pop(there.pid, None)


def fill(worker: Any) -> None:
    """In the process of a learner: from now on no checkpoint that is written aside can take its place."""

    def full(source: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    os.rename = full  # type: ignore[assignment]
