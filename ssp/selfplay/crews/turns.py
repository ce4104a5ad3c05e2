"""Turns of engines and learners that share GPUs: an engine sleeps while a learner computes, and
wakes to play.

Nobody plays on shared GPUs while a learner computes there. Two learners compute one after the
other. Turns are given in the order of asking, so nobody starves. Engines wake only to play. A turn
is one call of a crew, which has its own deadline, so every wait ends."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any, TypeVar

from ssp.base.crew import Around, Crew, CrewCall
from ssp.base.errors import Fault, SspError
from ssp.config.crews import learners, shared_gpus
from ssp.config.schema import Config
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.crews.seams import Players

W = TypeVar("W")
Turn = AbstractAsyncContextManager[None]

AWAKE = "engine_awake"
"""Fault of an engine that keeps too much memory in its sleep."""

TRIES = 6
"""How often a player is told to sleep or to wake: one that died is told again, once it is back."""


def seated(cfg: Config, cast: Cast) -> Cast:
    """The cast with crews that take turns in every call that computes. Such a call raises SspError
    when an engine does not obey."""
    players, taught = dict(cast.players), dict(cast.learners)
    for gpus in shared_gpus(cfg):
        floor = _Floor([cast.players[role] for role in gpus.sleepers])
        for role in gpus.roles:
            players[role] = _Seated(cast.players[role], floor.playing)
        for name in gpus.learners:
            learner = _Seated(cast.learners[name], floor.learning)
            taught |= dict.fromkeys(learners(cfg)[name], learner)
    return replace(cast, players=players, learners=taught)


class _Seated(Around[W]):
    def __init__(self, inner: Crew[W], turn: Callable[[], Turn]) -> None:
        super().__init__(inner)
        self._turn = turn

    async def perform(self, worker: int, call: CrewCall, *args: Any) -> Any:
        async with self._turn() if call.computes else nullcontext():
            # A call that is cancelled goes on over there: its turn lasts until it has ended.
            under_way = asyncio.ensure_future(self.inner.perform(worker, call, *args))
            try:
                return await asyncio.shield(under_way)
            except asyncio.CancelledError:
                await asyncio.wait([under_way])
                raise


class _Floor:
    """GPUs that are shared. Whoever wants a turn passes the gate, first come, first served. Players
    leave it once they play; a learner stays in it until it is done."""

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
        if self._awake is awake:
            return
        self._awake = None
        calls = []
        for crew in self._crews:
            calls += [_told(crew, worker, awake) for worker in range(crew.size)]
        for error in await asyncio.gather(*calls, return_exceptions=True):
            if error is not None:
                raise error
        self._awake = awake


async def _told(crew: Crew[Players], worker: int, awake: bool) -> None:
    """Tell one player to wake or to sleep; again when it died, since its new process is awake."""
    player = crew[worker]
    for _ in range(TRIES):
        try:
            return await (player.wake() if awake else player.sleep())
        except Fault as fault:
            said = str(fault)
            if fault.cause == AWAKE:
                break
    raise SspError(
        f"{crew.name}-{worker} shares its GPU with a learner and does not"
        f" {'wake' if awake else 'sleep'} ({said}). Next: lower placement.engine_gpus or the"
        " learner's token_budget, or set placement.layout=separate"
    )
