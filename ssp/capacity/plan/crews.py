"""Crews without workers: what a call would take is waited for in simulated time, and what it would say is made up.

Players decode by the arithmetic of simulated engines (`ssp.engines.decoding`) the lengths that such engines would draw,
from the same seeds.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ssp.base.crew import LocalCrew
from ssp.base.episode import Grade, State, Task, Verdict
from ssp.base.seeds import generator
from ssp.capacity.plan.costs import Costs, RoleCosts
from ssp.config.role import SimulatedConfig
from ssp.engines.decoding import Decoding, Pace
from ssp.learning.tiny.actor import turns
from ssp.learning.warmup.taught import BatchPlan
from ssp.record.ledger.writer import LedgerWriter, Rows
from ssp.selfplay.crews.seams import Players
from ssp.selfplay.records import Brief, PlayOrder, PlayReport
from ssp.selfplay.transfer.parcel import OBJECT_STORE, Parcel, Place

Block = list[int]
"""What stands for the payload of a block: model tokens of each episode."""
HERE = Place("simulation", "127.0.0.1")


class _Turn:
    """A turn on its way: the versions that draw its first and its last token, and its end."""

    def __init__(self) -> None:
        self.first = self.last = -1
        self.over = asyncio.get_running_loop().create_future()


class Engine:
    """One engine: what it decodes, with which version, how many blocks it has room for."""

    def __init__(self, pace: Pace, at_once: int) -> None:
        self.decoding: Decoding[_Turn] = Decoding(pace, self._started)
        self.room = asyncio.Semaphore(at_once)
        self.version = -1
        self._timer: asyncio.TimerHandle | None = None

    async def turn(self, tokens: int) -> _Turn:
        """Decode a turn of so many tokens, beside the others."""
        now, turn = self.catch_up(), _Turn()
        self.decoding.add(now, tokens, turn)
        self._wind()
        await turn.over
        return turn

    def switch(self, version: int) -> None:
        """Tokens from now on are of that version, unless there is a later one."""
        self.catch_up()
        self.version = max(version, self.version)

    def catch_up(self, at: float = -math.inf) -> float:
        """End the turns that end up to now, or up to `at`; gives that time."""
        now = max(at, asyncio.get_running_loop().time())
        for turn in self.decoding.advance(now):
            turn.last = self.version
            turn.over.set_result(None)
        return now

    def _started(self, turn: _Turn) -> None:
        turn.first = self.version

    def _wind(self) -> None:
        """Have a look when the next turn may end; one that began meanwhile only makes it later."""
        at = self.decoding.next()
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = None if at == math.inf else asyncio.get_running_loop().call_at(at, self._look, at)

    def _look(self, at: float) -> None:
        self._timer = None
        self.catch_up(at)
        self._wind()


class Fleet(LocalCrew[Players]):
    """The players of one role. `at_once`: blocks that one of them plays at a time."""

    def __init__(self, name: str, count: int, cost: RoleCosts, costs: Costs, at_once: int) -> None:
        self.engines = [Engine(cost.pace, at_once) for _ in range(count)]
        super().__init__(Players, name, lambda i: _Player(self.engines[i], cost, costs), count)

    def figures(self) -> list[float]:
        """Busy seconds, tokens, searches and running sequences times seconds, of all engines up to now."""
        for engine in self.engines:
            engine.catch_up()
        decodings = [engine.decoding for engine in self.engines]
        busy, tokens, slots = (sum(getattr(d, name) for d in decodings) for name in ("busy", "tokens", "slots"))
        return [busy, tokens, float(sum(player.searches for player in self.workers)), slots]


class _Player:
    """One of a fleet."""

    def __init__(self, engine: Engine, cost: RoleCosts, costs: Costs) -> None:
        self._engine, self._cost, self._costs, self.searches = engine, cost, costs, 0

    async def play(
        self, tasks: Sequence[Task], order: PlayOrder, version: int, parcel: Any
    ) -> tuple[Block, PlayReport]:
        loop = asyncio.get_running_loop()
        async with self._engine.room:
            started = loop.time()
            if version > self._engine.version:
                await self.refresh(version, parcel)
            briefs = await asyncio.gather(*(self._episode(task) for task in tasks))
            return [brief.tokens for brief in briefs], PlayReport(list(briefs), {"busy": loop.time() - started})

    async def refresh(self, version: int, parcel: Any) -> dict[str, float]:
        await asyncio.sleep(self._costs.sync_s)
        self._engine.switch(version)
        return {}

    async def place(self) -> Place:
        return HERE

    async def sleep(self) -> None:
        """It takes no time."""

    async def wake(self) -> None:
        """Nor does this."""

    async def _episode(self, task: Task) -> Brief:
        cost = self._cost
        lengths = _turns(cost.tokens, cost.sigma, task.seed, cost.searches, cost.cap)
        first = last = await self._engine.turn(lengths[0])
        for tokens in lengths[1:]:
            self.searches += 1
            await asyncio.sleep(self._costs.search_s)
            last = await self._engine.turn(tokens)
        return Brief(
            id=task.id,
            game=task.game,
            role=task.role,
            attempt=task.attempt,
            final=f"{task.id} ?",
            outcome=None,
            cause="",
            stopped="final",
            searches=len(lengths) - 1,
            tokens=sum(lengths),
            length=sum(lengths),
            version_min=first.first,
            version_max=last.last,
            file="",
            row=0,
        )


class Judge:
    """A judge that takes `seconds` a block: the share `valid` of all questions is, and every other answer of a game is
    right, so that all of them are trained. `asked`: counts the verdicts of all judges."""

    def __init__(self, seconds: float, valid: float, asked: Iterator[int]) -> None:
        self._seconds, self._valid, self._asked, self._free = seconds, valid, asked, asyncio.Lock()

    async def verify(self, block: Block, targets: Sequence[str], *live: Any) -> tuple[list[Verdict], float]:
        """Verdicts by the number of the call."""
        await self._work()
        drawn = generator(next(self._asked), "valid").random(len(block))
        return [Verdict(bool(draw < self._valid), "invalid") for draw in drawn], self._seconds

    async def grade(self, block: Block, items: Sequence[Any]) -> tuple[list[Grade], float]:
        """Right and wrong in turn."""
        await self._work()
        return [Grade(place % 2 == 0, float(place % 2 == 0)) for place in range(len(items))], self._seconds

    async def answers(self) -> bool:
        """Always."""
        return True

    async def _work(self) -> None:
        async with self._free:
            await asyncio.sleep(self._seconds)


class Learner:
    """One learner. `seconds`: that it takes a token, all of its ranks together."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.busy, self.trained, self._serial = 0.0, 0, -1

    async def update(
        self, plans: Mapping[str, BatchPlan], *blocks: Block
    ) -> tuple[Parcel, dict[str, dict[str, float]]]:
        """One update, and a publication."""
        tokens = {role: sum(blocks[item.block][item.row] for item in plan) for role, plan in plans.items()}
        spent = sum(tokens.values()) * self._seconds
        await asyncio.sleep(spent)
        self.busy += spent
        self.trained += sum(tokens.values())
        parcel, figures = await self.weights()
        return parcel, {role: {"tokens": float(count), "busy": spent, **figures} for role, count in tokens.items()}

    def figures(self) -> list[float]:
        """Busy seconds, and tokens trained, up to now."""
        return [self.busy, float(self.trained)]

    async def weights(self) -> tuple[Parcel, dict[str, float]]:
        """A publication."""
        self._serial += 1
        return Parcel(OBJECT_STORE, self._serial, 0), {"serial": float(self._serial)}

    async def place(self) -> Place:
        """There is one place only."""
        return HERE

    async def publish_by(self, plan: Any) -> None:
        """By the only way."""

    async def save(self, folder: str, meta: dict[str, Any]) -> None:
        """A folder without weights."""
        Path(folder).mkdir(parents=True)

    export = save


class Books(LedgerWriter):
    """Stands for the ledger: hands out versions, and counts what was dropped, by cause. The rest is not written."""

    def __init__(self) -> None:
        self._versions: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    async def next_version(self, role: str, *made: Any) -> int:
        """The next number of `role`."""
        self._versions[role] += 1
        return self._versions[role]

    async def advance(self, changes: Rows, /) -> int:
        """Count what is dropped."""
        lost = (State.DROPPED.value, State.VOIDED.value)
        self.dropped.update(row.get("cause", "") for row in changes if row.get("state") in lost)
        return 0


@functools.lru_cache(maxsize=500_000)
def _turns(tokens: float, sigma: float, seed: int, searches: tuple[int, int], cap: int) -> tuple[int, ...]:
    """Tokens of an episode's turns; each split and each sync of a plan plays the same ones."""
    return tuple(max(1, wanted) for wanted in turns(SimulatedConfig(tokens=tokens, sigma=sigma), seed, searches, cap))
