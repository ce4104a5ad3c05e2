"""A crew of Ray actors: calls have deadlines, Ray's exceptions become the game's `Fault`, restarts
are waited for."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import ray
from ray import exceptions

from ssp.base.crew import Crew, CrewCall
from ssp.base.errors import Fault, SspError

W = TypeVar("W")

ENDED = (exceptions.RayActorError, exceptions.ActorUnschedulableError, exceptions.OutOfMemoryError)
"""Ray's exceptions for an actor whose process has ended. The last one, for want of memory, is no
subclass of the first."""

REPEATS = 3
"""How often a lost call that may be repeated is made again before it counts as a fault."""

LOOK = 10.0
"""Seconds that an actor which is down gets to answer before it is asked again."""


@dataclass(frozen=True)
class Patience:
    """`call`: seconds one call may take, from when the actor answered the call before it. `start`:
    seconds an actor gets to (re)start."""

    call: float
    start: float


@dataclass
class LastCall:
    """The last call to an actor. `since`, `until`: Unix seconds (until 0: under way); `lost`: how
    it was lost ("": it was not)."""

    method: str
    since: float = field(default_factory=time.time)
    until: float = 0.0
    lost: str = ""

    def __str__(self) -> str:
        start = time.strftime("%H:%M:%S", time.gmtime(self.since))
        seconds = (self.until or time.time()) - self.since
        told = f"{self.method} at {start} UTC for {seconds:.1f} s"
        return f"{told} ({self.lost})" if self.lost else told


@dataclass(eq=False)
class Member:
    """One actor of a crew. `down`: its process ended, and it has not answered since. `open`: the
    deadlines of its calls."""

    name: str
    handle: Any
    down: bool = False
    open: set[asyncio.Timeout] = field(default_factory=set)


class RayCrew(Crew[W]):
    """A crew of actors without a state, which Ray restarts. Those with a state: `actors.learners`."""

    def __init__(
        self,
        kind: type[W],
        name: str,
        handles: Sequence[Any],
        patience: Patience,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(kind, name)
        self._patience = patience
        self._say = say
        self.members = [Member(f"{name}-{i}", handle) for i, handle in enumerate(handles)]
        self.last: dict[str, LastCall] = {}

    @property
    def size(self) -> int:
        """Workers that take calls."""
        return len(self.members)

    @property
    def handles(self) -> list[Any]:
        """Their actors."""
        return [member.handle for member in self.members]

    async def perform(self, worker: int, call: CrewCall, *args: Any) -> Any:
        """See `Crew.perform`. Payloads stay where they arose, and come back as references. A lost
        call is made again only where it may be."""
        member = self.members[worker]
        for _ in range(REPEATS if call.repeats else 0):
            with suppress(Fault):  # said already
                return await self._once(member, call, *args)
        return await self._once(member, call, *args)

    async def _once(self, member: Member, call: CrewCall, *args: Any) -> Any:
        if member.down:
            await self._revived(member)
        handle = member.handle
        # Ray packs the items of a list one by one, and a tuple at once: much smaller, and as much
        # faster.
        args = tuple(tuple(arg) if type(arg) is list else arg for arg in args)
        asked = self.last[member.name] = LastCall(call.name)
        try:
            method = getattr(handle, call.name)
            if not call.payload:
                return await self._patiently(member, method.remote(*args))
            payload, report = method.options(num_returns=2).remote(*args)
            return payload, await self._patiently(member, report)
        except (exceptions.ObjectLostError, exceptions.OwnerDiedError) as error:
            raise Fault("payload_lost", str(error).splitlines()[0]) from error
        except exceptions.RayTaskError as error:
            # before the two below: it is also of its cause's class, such as TimeoutError
            raise cause_of(error) from error
        except TimeoutError:
            ray.kill(handle, no_restart=False)
            detail = f"{call.name} took longer than {self._patience.call:g} s"
            raise self._fault(member, asked, "deadline", detail) from None
        except ENDED as error:
            detail = f"its process ended during {call.name}"
            raise self._fault(member, asked, "died", detail) from error
        finally:
            asked.until = time.time()

    async def _patiently(self, member: Member, answer: Any) -> Any:
        """The answer; TimeoutError when it takes too long.

        Calls of several rounds wait behind each other at one actor. Each answer gives the others
        their time anew; else the last in line would get an actor killed that works."""
        async with asyncio.timeout(self._patience.call) as deadline:
            member.open.add(deadline)
            try:
                result = await answer
            finally:
                member.open.discard(deadline)
            for other in member.open:
                if not other.expired():
                    other.reschedule(asyncio.get_running_loop().time() + self._patience.call)
            return result

    async def ready(self) -> None:
        """Wait until every actor has started; an exception of a constructor is raised here."""
        async with starting(self.name, self._patience.start):
            await self.pids()

    async def pids(self) -> list[int]:
        """Process ids."""
        return [await handle.ping.remote() for handle in self.handles]

    def _fault(self, member: Member, asked: LastCall, kind: str, detail: str) -> Fault:
        member.down = True
        asked.lost = detail
        self._say(f"{member.name} {kind}: {detail}")
        return Fault(f"{self.name}_{kind}", detail)

    async def _revived(self, member: Member) -> None:
        """Wait until an actor that is down answers. SspError when it does not come back."""
        deadline = time.monotonic() + self._patience.start
        while time.monotonic() < deadline:
            try:
                # Not wait_for: Python 3.11's swallows a cancellation that comes with the answer,
                # and the caller lives on.
                async with asyncio.timeout(min(LOOK, deadline - time.monotonic())):
                    await member.handle.ping.remote()
            except (*ENDED, TimeoutError) as error:
                if died_for_good(error):
                    why = f"it used up its restarts, or it cannot start ({last_line(error)})"
                    raise SspError(f"{member.name} died for good: {why}") from error
                await asyncio.sleep(0.2)
            else:
                if member.down:  # several calls may have waited for it
                    member.down = False
                    self._say(f"{member.name} is back")
                return
        late = f"{member.name} did not come back within {self._patience.start:g} s"
        raise SspError(f"{late}: see its log in Ray")


@asynccontextmanager
async def starting(name: str, seconds: float) -> AsyncIterator[None]:
    """Around the start of a crew: raise its errors as a user reads them."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except exceptions.RayTaskError as error:
        # before the two below: it is also of its cause's class
        raise cause_of(error) from error
    except ENDED as error:
        raise SspError(f"{name} could not start: {last_line(error)}") from error
    except TimeoutError:
        free = ray.available_resources().get("CPU", 0)
        late = f"{name} did not start within placement.call_timeout={seconds:g} s"
        step = f"see whether the cluster has the CPUs ({free:.1f} are free), or raise it"
        raise SspError(f"{late}. Next: {step}") from None


def cause_of(error: exceptions.RayTaskError) -> Exception:
    """The exception that an actor's own code raised."""
    return error.cause if isinstance(error.cause, Exception) else error


def died_for_good(error: Exception | None) -> bool:
    """Whether Ray does not start the actor again; it does, elsewhere, when a node was preempted."""
    return isinstance(error, exceptions.ActorDiedError) and not error.preempted


def last_line(error: Exception) -> str:
    """The last line of Ray's message. When memory ran out it fills pages: then its figures."""
    text = str(error)
    figures = re.search(r"was ([\d.]+)GB used / ([\d.]+)GB limit", text)
    if figures:
        return f"the node's memory ran out: {figures[1]} of {figures[2]} GB used"
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
