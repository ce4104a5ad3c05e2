"""A crew of Ray actors: calls with deadlines, faults typed, restarts waited for.

Owns the map from Ray's exceptions to the game's `Fault`. Promises that a call to a hung actor ends (the actor is killed
and restarts), that the next call waits until the restarted actor answers, and that an exception of the worker's own
code is raised as it was. Refuses to retry: what a lost call means is the caller's to decide.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import (
    ActorUnavailableError,
    ObjectLostError,
    OwnerDiedError,
    RayActorError,
    RayTaskError,
)

from ssp.errors import Fault, SspError
from ssp.selfplay.crew import PAYLOAD_METHODS

REVIVE_WITHIN = 90.0
"""Seconds a restarting actor gets: process start, imports and model load."""


class RayCrew:
    """`ssp.selfplay.crew.Crew` over actor handles."""

    def __init__(self, name: str, handles: Sequence[Any], timeout: float, log: Any = None) -> None:
        self.name, self.size = name, len(handles)
        self._handles, self._timeout = list(handles), timeout
        self._down = [False] * len(handles)
        self._say = log or (lambda text: None)

    async def call(self, worker: int, method: str, *args: Any) -> Any:
        """One call; payload methods come back as `(reference, report)`."""
        if self._down[worker]:
            await self._revived(worker)
        handle = self._handles[worker]
        try:
            if method not in PAYLOAD_METHODS:
                return await asyncio.wait_for(_value(getattr(handle, method).remote(*args)), self._timeout)
            payload, report = getattr(handle, method).options(num_returns=2).remote(*args)
            return payload, await asyncio.wait_for(_value(report), self._timeout)
        except TimeoutError:
            ray.kill(handle, no_restart=False)
            raise self._fault(worker, "deadline", f"{method} took longer than {self._timeout:.0f} s") from None
        except (RayActorError, ActorUnavailableError) as error:
            raise self._fault(worker, "died", str(error).splitlines()[0]) from error
        except (ObjectLostError, OwnerDiedError) as error:
            raise Fault("payload_lost", str(error).splitlines()[0]) from error
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from error

    async def ready(self) -> None:
        """Wait until every actor has started; an exception of a constructor is raised here."""
        for handle in self._handles:
            try:
                await asyncio.wait_for(_value(handle.ping.remote()), REVIVE_WITHIN)
            except RayTaskError as error:
                raise (error.cause if isinstance(error.cause, Exception) else error) from error
            except RayActorError as error:
                raise SspError(f"{self.name} could not start: {error}") from error

    async def pids(self) -> list[int]:
        """Process ids, for tests and supervision."""
        return [await _value(handle.ping.remote()) for handle in self._handles]

    def _fault(self, worker: int, kind: str, detail: str) -> Fault:
        self._down[worker] = True
        self._say(f"{self.name}-{worker} {kind}: {detail}")
        return Fault(f"{self.name}_{kind}", detail)

    async def _revived(self, worker: int) -> None:
        deadline = time.monotonic() + REVIVE_WITHIN
        while time.monotonic() < deadline:
            try:
                await asyncio.wait_for(_value(self._handles[worker].ping.remote()), deadline - time.monotonic())
            except (RayActorError, TimeoutError):
                await asyncio.sleep(0.2)
            else:
                self._down[worker] = False
                self._say(f"{self.name}-{worker} is back")
                return
        raise SspError(f"{self.name}-{worker} did not come back within {REVIVE_WITHIN:.0f} s: see its log in Ray")


async def _value(reference: Any) -> Any:
    return await reference
