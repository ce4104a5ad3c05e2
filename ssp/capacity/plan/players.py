"""The players of a simulated run: engines decode by the arithmetic of simulated engines
(`ssp.engines.simulated`), in a time that jumps, the lengths that such engines would draw."""

import asyncio
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ssp.base.crew import LocalCrew
from ssp.base.episode import Task
from ssp.base.played import Brief
from ssp.base.values import Seconds
from ssp.capacity.plan.costs import Costs, RoleCosts
from ssp.engines.simulated import DecodePace, Decoding
from ssp.learning.tiny.actor import turns
from ssp.selfplay.crews.seams import Players
from ssp.selfplay.records import PlayOrder, PlayReport

TokenCounts = list[int]
"""Stands for a payload: model tokens of each episode."""


@dataclass(eq=False)
class _PlannedTurn:
    """The versions that draw its first and its last token, and its end."""

    over: asyncio.Future[None]
    first: int = -1
    last: int = -1


class _Engine:
    """What one engine decodes, with which version; `room` for so many blocks."""

    def __init__(self, pace: DecodePace, at_once: int) -> None:
        self.decoding: Decoding[_PlannedTurn] = Decoding(pace, self._started)
        self.room = asyncio.Semaphore(at_once)
        self.version = -1
        self._timer: asyncio.TimerHandle | None = None

    async def turn(self, tokens: int) -> _PlannedTurn:
        turn = _PlannedTurn(asyncio.get_running_loop().create_future())
        self.decoding.add(self.catch_up(), tokens, turn)
        self._wind()
        await turn.over
        return turn

    def catch_up(self, at: float = -math.inf) -> float:
        """End the turns that are over now, or at the later time `at`. Returns that time."""
        now = max(at, asyncio.get_running_loop().time())
        for turn in self.decoding.advance(now):
            turn.last = self.version
            turn.over.set_result(None)
        return now

    def _started(self, turn: _PlannedTurn) -> None:
        turn.first = self.version

    def _wind(self) -> None:
        """Look when the next turn may end; one that began meanwhile only makes it later."""

        def look() -> None:
            self._timer = None
            self.catch_up(at)
            self._wind()

        at = self.decoding.next()
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = None
        if at < math.inf:
            self._timer = asyncio.get_running_loop().call_at(at, look)


class PlannedPlayers(LocalCrew[Players]):
    """The players of one role. `at_once`: blocks that one of them plays at a time."""

    def __init__(self, name: str, count: int, cost: RoleCosts, costs: Costs, at_once: int) -> None:
        self.engines = [_Engine(cost.pace, at_once) for _ in range(count)]

        def player(i: int) -> Players:
            return _SimulatedPlayer(self.engines[i], cost, costs)  # type: ignore[abstract]

        super().__init__(Players, name, player, count)

    def figures(self) -> list[float]:
        """Busy seconds, tokens, searches and running sequences times seconds, of all engines up to
        now."""
        busy = tokens = slots = 0.0
        for engine in self.engines:
            engine.catch_up()
            busy += engine.decoding.busy
            tokens += engine.decoding.tokens
            slots += engine.decoding.slots
        searches = sum(player.searches for player in self.workers)
        return [busy, tokens, float(searches), slots]


class _SimulatedPlayer(Players):  # `sleep` and `wake` do nothing
    def __init__(self, engine: _Engine, cost: RoleCosts, costs: Costs) -> None:
        self._engine, self._cost, self._costs = engine, cost, costs
        self.searches = 0

    async def play(
        self, tasks: Sequence[Task], order: PlayOrder, version: int, parcel: Any
    ) -> tuple[TokenCounts, PlayReport]:
        loop = asyncio.get_running_loop()
        async with self._engine.room:
            started = loop.time()
            if version > self._engine.version:
                await self.refresh(version, parcel)
            briefs = await asyncio.gather(*map(self._episode, tasks))
            report = PlayReport(list(briefs), {"busy": loop.time() - started})
            return [brief.tokens for brief in briefs], report

    async def refresh(self, version: int, parcel: Any) -> Seconds:
        await asyncio.sleep(self._costs.sync_s)
        self._engine.catch_up()
        self._engine.version = max(version, self._engine.version)
        return {}

    async def _episode(self, task: Task) -> Brief:
        cost = self._cost
        lengths = _turns(cost.tokens, cost.sigma, task.seed, cost.searches, cost.cap)
        first = last = await self._engine.turn(lengths[0])
        for tokens in lengths[1:]:
            self.searches += 1
            await asyncio.sleep(self._costs.search_s)
            last = await self._engine.turn(tokens)
        total = sum(lengths)
        return Brief(
            task.id,
            task.game,
            task.role,
            task.attempt,
            final=f"{task.id} ?",
            outcome=None,
            cause="",
            stopped="final",
            searches=len(lengths) - 1,
            tokens=total,
            length=total,
            version_min=first.first,
            version_max=last.last,
            file="",
            row=0,
        )


@functools.lru_cache(maxsize=500_000)
def _turns(
    tokens: float, sigma: float, seed: int, searches: tuple[int, int], cap: int
) -> tuple[int, ...]:
    """Tokens of an episode's turns; each split of a plan plays the same ones."""
    return tuple(max(1, wanted) for wanted in turns(tokens, sigma, seed, searches, cap))
