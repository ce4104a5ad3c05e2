"""A crew of Ray actors: calls with deadlines, faults typed, restarts waited for.

Owns the map from Ray's exceptions to the game's `Fault`. Promises that a call to a hung actor ends (the actor is killed
and restarts), that the next call waits until the restarted actor answers, and that an exception of the worker's own
code is raised as it was. Refuses to repeat a lost call, except for a crew of idempotent methods that asks for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import (
    ActorDiedError,
    ObjectLostError,
    OwnerDiedError,
    RayActorError,
    RayTaskError,
)

from ssp.errors import Fault, SspError
from ssp.selfplay.crew import PAYLOAD_METHODS


@dataclass(frozen=True)
class Patience:
    """Seconds one call may take, seconds an actor gets to start or restart, and lost calls that are made again."""

    call: float
    start: float
    repeats: int = 0


class RayCrew:
    """`ssp.selfplay.crew.Crew` over actor handles."""

    def __init__(self, name: str, handles: Sequence[Any], patience: Patience, say: Callable[[str], None]) -> None:
        self.name, self.size = name, len(handles)
        self.handles, self._patience = list(handles), patience
        self._down = [False] * len(handles)
        self._say = say

    async def call(self, worker: int, method: str, *args: Any) -> Any:
        """One call; payload methods come back as `(reference, report)`."""
        for _ in range(self._patience.repeats):
            try:
                return await self._once(worker, method, *args)
            except Fault:
                continue  # said already; the methods of this crew are idempotent
        return await self._once(worker, method, *args)

    async def _once(self, worker: int, method: str, *args: Any) -> Any:
        if self._down[worker]:
            await self._revived(worker)
        handle, timeout = self.handles[worker], self._patience.call
        try:
            if method not in PAYLOAD_METHODS:
                return await asyncio.wait_for(_value(getattr(handle, method).remote(*args)), timeout)
            payload, report = getattr(handle, method).options(num_returns=2).remote(*args)
            return payload, await asyncio.wait_for(_value(report), timeout)
        except (ObjectLostError, OwnerDiedError) as error:
            raise Fault("payload_lost", str(error).splitlines()[0]) from error
        except RayTaskError as error:  # before the two below: it is also of its cause's class, a TimeoutError too
            raise (error.cause if isinstance(error.cause, Exception) else error) from error
        except TimeoutError:
            ray.kill(handle, no_restart=False)
            raise self._fault(worker, "deadline", f"{method} took longer than {timeout:g} s") from None
        except RayActorError as error:
            raise self._fault(worker, "died", f"its process ended during {method}") from error

    async def ready(self) -> None:
        """Wait until every actor has started; an exception of a constructor is raised here."""
        deadline = time.monotonic() + self._patience.start
        for handle in self.handles:
            try:
                await asyncio.wait_for(_value(handle.ping.remote()), max(0.0, deadline - time.monotonic()))
            except RayTaskError as error:
                raise (error.cause if isinstance(error.cause, Exception) else error) from error
            except RayActorError as error:
                raise SspError(f"{self.name} could not start: {_last_line(error)}") from error
            except TimeoutError:
                raise SspError(
                    f"{self.name} did not start within ray.start_timeout={self._patience.start:g} s. Next: see whether "
                    f"the cluster has the CPUs ({ray.available_resources().get('CPU', 0):.1f} are free), or raise it"
                ) from None

    async def pids(self) -> list[int]:
        """Process ids, for tests and supervision."""
        return [await _value(handle.ping.remote()) for handle in self.handles]

    def _fault(self, worker: int, kind: str, detail: str) -> Fault:
        self._down[worker] = True
        self._say(f"{self.name}-{worker} {kind}: {detail}")
        return Fault(f"{self.name}_{kind}", detail)

    async def _revived(self, worker: int) -> None:
        deadline = time.monotonic() + self._patience.start
        while time.monotonic() < deadline:
            try:
                await asyncio.wait_for(_value(self.handles[worker].ping.remote()), deadline - time.monotonic())
            except ActorDiedError as error:
                raise SspError(
                    f"{self.name}-{worker} died for good: placement.restarts is used up, or it cannot start "
                    f"({_last_line(error)})"
                ) from error
            except (RayActorError, TimeoutError):
                await asyncio.sleep(0.2)
            else:
                self._down[worker] = False
                self._say(f"{self.name}-{worker} is back")
                return
        raise SspError(f"{self.name}-{worker} did not come back within {self._patience.start:g} s: see its log in Ray")


def _last_line(error: Exception) -> str:
    """What Ray says last: of a constructor's failure, its own error without the traceback before it."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)


async def _value(reference: Any) -> Any:
    return await reference
