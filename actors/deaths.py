"""Reports of actors whose process ended: one paragraph, and a line of deaths.jsonl in the run
folder."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayError

from actors.crew import LastCall, died_for_good, last_line
from actors.process import About
from actors.program import Program
from actors.restarts import POLICIES

FILE = "deaths.jsonl"
"""The file's name in the run folder."""

EVERY, PATIENCE = 2.0, 1.0
"""Seconds between two looks; seconds that one look waits for actors that are busy."""


class Deaths:
    """Asks the actors of one run again and again who they are: one that is another process than
    before, or none, has died. `restarts`: how often each may; `say` takes a line for the user."""

    def __init__(
        self, file: Path, restarts: int, program: Program, say: Callable[[str], None]
    ) -> None:
        self._file = file
        self._restarts = restarts
        self._program = program
        self._say = say
        self._actors: dict[Any, tuple[str, LastCall | None]] = {}
        self._seen: dict[Any, About] = {}
        self._asked: dict[Any, asyncio.Future[About]] = {}
        self._times = Counter[str]()

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(EVERY)

    async def look(self) -> None:
        """Tell who has died since the last look. Who is busy answers at a later one."""
        there = {handle: (name, last) for name, handle, last in self._program.actors}
        # an actor that its crew has replaced stays until its end is told
        self._actors |= there
        for handle in self._actors:
            if handle not in self._asked:
                self._asked[handle] = asyncio.ensure_future(handle.about.remote())
        await asyncio.wait(self._asked.values(), timeout=PATIENCE)
        for handle, (name, last) in list(self._actors.items()):
            if not self._asked[handle].done():
                continue
            before = self._seen.pop(handle, None)
            try:
                now = self._seen[handle] = self._asked.pop(handle).result()
            except RayError as error:
                if before is not None:
                    self._tell(name, before, last, error)
                if handle not in there:
                    del self._actors[handle]
            else:
                if before is not None and now.pid != before.pid:
                    self._tell(name, before, last)

    def close(self) -> None:
        """Look no more: from now on it is the program that ends actors."""
        for answer in self._asked.values():
            answer.cancel()

    def _tell(
        self, name: str, was: About, last: LastCall | None, error: RayError | None = None
    ) -> None:
        """Report the end of the process that `was`."""
        self._times[name] += 1
        nodes: dict[str, Any] = {node["NodeID"]: node for node in ray.nodes()}
        node = nodes.get(was.node, {})
        if isinstance(error, (ActorDiedError, OutOfMemoryError)):
            end = last_line(error).split(" Some common causes")[0].rstrip(".")
        elif node.get("Alive"):
            end = "Ray does not say how (raylet.out does, of memory)"
        else:
            end = "its node is gone"
        alive = not died_for_good(error)
        then = POLICIES[was.kind].told(self._times[name], self._restarts, alive)
        place = str(node.get("NodeManagerAddress", was.node))
        asked = "nothing" if last is None else str(last)
        ended = f"{name}: process {was.pid} on {place} ended: {end}. Last asked for: {asked}."
        log = f"Its log: logs/worker-*-{was.pid}.err of Ray's session folder there."
        self._say(f"{ended} {then[0].upper()}{then[1:]}. {log}")
        death = {
            "actor": name,
            "kind": was.kind,
            "node": place,
            "pid": was.pid,
            "end": end,
            "last_call": asked,
            "then": then,
            "time": time.time(),
        }
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(death) + "\n")


@asynccontextmanager
async def watched(
    file: Path, restarts: int, program: Program, say: Callable[[str], None]
) -> AsyncIterator[None]:
    """Around a run's play: report who dies (`Deaths.watch`)."""
    deaths = Deaths(file, restarts, program, say)
    task = asyncio.create_task(surely("death reports", deaths.watch(), say))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await surely("death reports", deaths.look(), say)  # what the run may have ended by
        deaths.close()


async def surely(what: str, job: Awaitable[Any], say: Callable[[str], None]) -> None:
    """Do what a run can go on without, and say so when it fails."""
    try:
        await job
    except Exception as error:
        say(f"no {what} any more: {error!r}")
