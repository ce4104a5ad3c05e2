"""A crew of Ray actors: calls with deadlines, faults typed, restarts waited for.

Owns the map from Ray's exceptions to the game's `Fault`. Promises that a call to a hung actor ends (the actor is killed
and restarts), that the next call waits until the restarted actor answers, and that an exception of the worker's own
code is raised as it was. Refuses to repeat a lost call that is not marked as one that may be (`ssp.base.crew.Call`).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnschedulableError,
    ObjectLostError,
    OutOfMemoryError,
    OwnerDiedError,
    RayActorError,
    RayTaskError,
)

from actors.calls import Asked, Calls
from ssp.base.crew import Call, Crew
from ssp.base.errors import Fault, SspError

W = TypeVar("W")


@dataclass(frozen=True)
class Patience:
    """Seconds one call may take, from when the actor answered the call before it; seconds an actor gets to start or
    restart."""

    call: float
    start: float


ENDED = (RayActorError, ActorUnschedulableError, OutOfMemoryError)
"""Ray's words for an actor whose process has ended; the last one, for want of memory, is none of the first's kind."""

USERS = 3
"""The largest processes that a line about memory names."""

REPEATS = 3
"""How often a lost call that may be repeated is made again before it counts as a fault."""

LOOK = 10.0
"""Seconds that one that is down gets to answer before it is looked at again."""


@dataclass(eq=False)
class Member:
    """One actor of a crew. `down`: its process ended, or was ended, and it has not answered since. `gone`: it is no member
    any more. `open`: the deadlines of its calls under way."""

    name: str
    handle: Any
    down: bool = False
    open: set[asyncio.Timeout] = field(default_factory=set)


class RayCrew(Crew[W]):
    """A crew of actors.

    `again`: starts another actor in the place of one that ended, up to `restarts` times, for actors with a state. Ray must
    not restart these: one that it restarted between two calls would answer the next one without its state.
    """

    def __init__(
        self,
        kind: type[W],
        name: str,
        handles: Sequence[Any],
        patience: Patience,
        say: Callable[[str], None],
        again: Callable[[], Any] | None = None,
        restarts: int = 0,
    ) -> None:
        super().__init__(kind, name)
        self._patience, self._say = patience, say
        self._again, self._left = again, restarts
        self.members = [Member(f"{name}-{i}", handle) for i, handle in enumerate(handles)]
        self.calls = Calls()

    @property
    def size(self) -> int:
        """Workers that take calls."""
        return len(self.members)

    @property
    def handles(self) -> list[Any]:
        """Their actors."""
        return [member.handle for member in self.members]

    async def perform(self, worker: int, call: Call, *args: Any) -> Any:
        """See `Crew.perform`; payloads stay where they are, and come back as references."""
        for _ in range(REPEATS if call.repeats else 0):
            with suppress(Fault):  # said already
                return await self._once(worker, call, *args)
        return await self._once(worker, call, *args)

    async def _once(self, worker: int, call: Call, *args: Any) -> Any:
        member = self.members[worker]
        if member.down:
            await self._revived(member)
        with self.calls.of(member.name, call.name) as asked:
            return await self._answer(member, call, asked, *args)

    async def _answer(self, member: Member, call: Call, asked: Asked, *args: Any) -> Any:
        handle, timeout = member.handle, self._patience.call
        try:
            method = getattr(handle, call.name)
            if not call.payload:
                return await self._patiently(member, method.remote(*args))
            payload, report = method.options(num_returns=2).remote(*args)
            return payload, await self._patiently(member, report)
        except (ObjectLostError, OwnerDiedError) as error:
            raise Fault("payload_lost", str(error).splitlines()[0]) from error
        except RayTaskError as error:  # before the two below: it is also of its cause's class, a TimeoutError too
            raise (error.cause if isinstance(error.cause, Exception) else error) from error
        except TimeoutError:
            ray.kill(handle, no_restart=False)
            raise self._fault(member, asked, "deadline", f"{call.name} took longer than {timeout:g} s") from None
        except ENDED as error:
            raise self._fault(member, asked, "died", f"its process ended during {call.name}") from error

    async def _patiently(self, member: Member, answer: Any) -> Any:
        """TimeoutError. Calls of several rounds wait behind each other at one actor: each answer gives the others their
        time anew, or the last in line would get an actor killed that works."""
        async with asyncio.timeout(self._patience.call) as deadline:
            member.open.add(deadline)
            try:
                found = await answer
            finally:
                member.open.discard(deadline)
            for other in member.open:
                if not other.expired():
                    other.reschedule(asyncio.get_running_loop().time() + self._patience.call)
            return found

    async def ready(self) -> None:
        """Wait until every actor has started; an exception of a constructor is raised here."""
        async with starting(self.name, self._patience.start):
            for handle in self.handles:
                await handle.ping.remote()

    async def pids(self) -> list[int]:
        """Process ids, for tests and supervision."""
        return [await handle.ping.remote() for handle in self.handles]

    def _fault(self, member: Member, asked: Asked, kind: str, detail: str) -> Fault:
        member.down = True
        self.calls.lose(asked, detail)
        self._say(f"{member.name} {kind}: {detail}")
        return Fault(f"{self.name}_{kind}", detail)

    async def _revived(self, member: Member) -> None:
        deadline = time.monotonic() + self._patience.start
        while time.monotonic() < deadline:
            handle = member.handle
            try:
                await _within(min(LOOK, deadline - time.monotonic()), handle.ping.remote())
            except ActorDiedError as error:
                await asyncio.sleep(0.2)
                if error.preempted:  # its node has left: Ray starts it again on another one
                    continue
                if member.handle is handle:  # nobody else who waits has seen to it
                    self._replace(member, error)
            except (*ENDED, TimeoutError):
                await asyncio.sleep(0.2)
            else:
                if member.down:  # several calls may have waited for it
                    member.down = False
                    self._say(f"{member.name} is back")
                return
        raise SspError(f"{member.name} did not come back within {self._patience.start:g} s: see its log in Ray")

    def _replace(self, member: Member, error: ActorDiedError) -> None:
        """Start another actor in its place, where that is ours to do, once Ray has given its name free."""
        if self._again is None or not self._left:
            raise SspError(
                f"{member.name} died for good: placement.restarts is used up, or it cannot start ({last_line(error)})"
            ) from error
        ray.kill(member.handle, no_restart=True)  # dead as it is, it keeps its name until then
        with suppress(ValueError):
            member.handle = self._again()
            self._left -= 1


@asynccontextmanager
async def starting(name: str, seconds: float) -> AsyncIterator[None]:
    """Around the start of a crew: its errors as a user reads them."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except RayTaskError as error:  # before the two below: it is also of its cause's class
        raise (error.cause if isinstance(error.cause, Exception) else error) from error
    except ENDED as error:
        raise SspError(f"{name} could not start: {last_line(error)}") from error
    except TimeoutError:
        raise SspError(
            f"{name} did not start within ray.start_timeout={seconds:g} s. Next: see whether "
            f"the cluster has the CPUs ({ray.available_resources().get('CPU', 0):.1f} are free), or raise it"
        ) from None


def last_line(error: Exception) -> str:
    """What Ray says last: of a constructor's failure, its own error without the traceback before it; of its report on memory
    that ran out, what is in it."""
    lines = memory_line(str(error)).splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), type(error).__name__)


def memory_line(report: str) -> str:
    """Ray's report on a node whose memory ran out, which fills pages, in one line; a text of another form stays."""
    found = re.search(r"was ([\d.]+)GB used / ([\d.]+)GB limit", report)
    if found is None:
        return report
    used, limit = map(float, found.groups())
    largest = re.findall(r"^(\d+)\t([\d.]+)\t(.+)$", report, re.MULTILINE)[:USERS]
    told = ", ".join(f"{command.split(' -')[0]} ({pid}) {size} GB" for pid, size, command in largest)
    left = f"{used:g} of {limit:g} GB used, {limit - used:.2f} free"
    return f"the node's memory ran out: {left}; largest: {told or 'not told'}"


async def _within(seconds: float, answer: Any) -> Any:
    """TimeoutError. Not `wait_for`: Python 3.11's swallows a cancellation that comes with the answer, and the caller lives
    on."""
    async with asyncio.timeout(seconds):
        return await answer
