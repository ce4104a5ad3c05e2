"""Turns of engines and learners that share GPUs: an engine sleeps while a learner computes, and wakes to play.

Owns which of them share (placement.layout=colocate, or shared-base with parts of a GPU), and whose turn it is.
Promises that nobody plays on shared GPUs while a learner computes there, that two learners compute one after the other, that
turns are given in the order in which they were asked for (nobody starves), and that engines wake only when somebody plays.
A turn is as long as one call of a crew, which holds nothing else and has its own deadline, so every wait ends.
Other layouts share none: their crews stay as they are. Refuses to know what sleep is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from ssp.base.crew import Around, Call, Crew
from ssp.base.errors import Fault, SspError
from ssp.config.crews import learners, shared_gpus
from ssp.config.schema import Config
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.crews.seams import Learners, Players

W = TypeVar("W")
Turn = AbstractAsyncContextManager[None]

AWAKE = "engine_awake"
"""Fault of an engine that keeps too much memory in its sleep."""

TRIES = 6
"""How often a player is told to sleep or to wake: one that died is told again, once it is back."""


class Turns:
    """Whose turn it is on each of the shared GPUs of a run. `cast`: where the engines are that sleep."""

    def __init__(self, cfg: Config, cast: Cast) -> None:
        self._cfg, self._cast = cfg, cast
        self._played: dict[str, _Floor] = {}
        self._learned: dict[str, _Floor] = {}
        for gpus in shared_gpus(cfg):
            floor = _Floor([self._cast.players[role] for role in gpus.sleepers])
            self._played |= dict.fromkeys(gpus.roles, floor)
            self._learned |= dict.fromkeys(gpus.learners, floor)

    def playing(self, role: str) -> Turn:
        """While an engine of `role` plays: any number of them at once. SspError when one cannot be woken."""
        return self._played[role].playing() if role in self._played else nullcontext()

    def learning(self, learner: str) -> Turn:
        """While `learner` computes: alone. SspError when an engine cannot be put to sleep."""
        return self._learned[learner].learning() if learner in self._learned else nullcontext()

    def seated(self) -> Cast:
        """The cast, with crews that take their turns in every call that computes."""
        players = {
            role: _Seated(crew, partial(self.playing, role)) if role in self._played else crew
            for role, crew in self._cast.players.items()
        }
        taught: dict[str, Crew[Learners]] = {}
        for name, roles in learners(self._cfg).items():
            crew = self._cast.learners[name]
            seat = _Seated(crew, partial(self.learning, name)) if name in self._learned else crew
            taught |= dict.fromkeys(roles, seat)
        return replace(self._cast, players=players, learners=taught)


class _Seated(Around[W]):
    """A crew whose calls that compute wait for their turn."""

    def __init__(self, inner: Crew[W], turn: Callable[[], Turn]) -> None:
        super().__init__(inner)
        self._turn = turn

    async def perform(self, worker: int, call: Call, *args: Any) -> Any:
        """See `Crew.perform`. A call that is cancelled goes on over there: its turn lasts until it has ended."""
        async with self._turn() if call.computes else nullcontext():
            under_way = asyncio.ensure_future(self.inner.perform(worker, call, *args))
            try:
                return await asyncio.shield(under_way)
            except asyncio.CancelledError:
                await asyncio.wait([under_way])
                raise


class _Floor:
    """GPUs that are shared. Who wants a turn passes the gate, which is first come, first served; learners stay in it."""

    def __init__(self, crews: Sequence[Crew[Players]]) -> None:
        self._crews = crews
        self._gate, self._nobody = asyncio.Lock(), asyncio.Event()
        self._nobody.set()
        self._playing = 0
        self._awake: bool | None = None  # not known

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[None]:
        async with self._gate:
            await self._be(awake=True)
            self._playing += 1
            self._nobody.clear()
        try:
            yield
        finally:
            self._playing -= 1
            if not self._playing:
                self._nobody.set()

    @asynccontextmanager
    async def learning(self) -> AsyncIterator[None]:
        async with self._gate:
            await self._nobody.wait()
            await self._be(awake=False)
            yield

    async def _be(self, awake: bool) -> None:
        """Have all engines awake, or asleep."""
        if self._awake is not awake:
            self._awake = None
            calls = [_told(crew, worker, awake) for crew in self._crews for worker in range(crew.size)]
            failed = [error for error in await asyncio.gather(*calls, return_exceptions=True) if error is not None]
            if failed:
                raise failed[0]
            self._awake = awake


async def _told(crew: Crew[Players], worker: int, awake: bool) -> None:
    """Tell one player, again when it died: its new process is awake, and hears of its turn here."""
    for _ in range(TRIES):
        try:
            await (crew[worker].wake() if awake else crew[worker].sleep())
            return
        except Fault as fault:
            said = str(fault)
            if fault.cause == AWAKE:
                break
    what = "wake" if awake else "sleep"
    raise SspError(
        f"{crew.name}-{worker} shares its GPU with a learner and does not {what} ({said}). Next: lower "
        "placement.engine_gpus or the learner's token_budget, or set placement.layout=separate"
    )
