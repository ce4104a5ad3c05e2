"""Crews without workers: what a call would take is waited for in simulated time, and what it would say is made up.

Players decode by the arithmetic of simulated engines (`ssp.engines.decoding`) the lengths that such engines would draw,
from the same seeds.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ssp.base.episode import Grade, State, Task, Verdict
from ssp.base.seeds import generator
from ssp.capacity.plan.costs import Costs, RoleCosts
from ssp.config.role import SimulatedConfig
from ssp.engines.decoding import Decoding, Pace
from ssp.learning.tiny.actor import turns
from ssp.selfplay.records import Brief, PlanItem, PlayReport
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


class Players:
    """Crew of the players of one role. `at_once`: blocks that one of them plays at a time."""

    def __init__(self, name: str, count: int, cost: RoleCosts, costs: Costs, at_once: int) -> None:
        self.name, self.size, self._cost, self._costs = name, count, cost, costs
        self.engines = [Engine(cost.pace, at_once) for _ in range(count)]
        self._searches = 0

    async def call(self, worker: int, method: str, *args: Any) -> Any:
        """See `Crew.call`."""
        engine = self.engines[worker]
        if method == "play":
            tasks, _, version, _ = args
            async with engine.room:
                return await self._play(engine, tasks, version)
        if method == "refresh":
            await self._load(engine, args[0])
            return {}
        return HERE if method == "place" else None

    async def _load(self, engine: Engine, version: int) -> None:
        await asyncio.sleep(self._costs.sync_s)
        engine.switch(version)

    async def _play(self, engine: Engine, tasks: Sequence[Task], version: int) -> tuple[Block, PlayReport]:
        loop = asyncio.get_running_loop()
        started = loop.time()
        if version > engine.version:
            await self._load(engine, version)
        briefs = await asyncio.gather(*(self._episode(engine, task) for task in tasks))
        return [brief.tokens for brief in briefs], PlayReport(list(briefs), {"busy": loop.time() - started})

    async def _episode(self, engine: Engine, task: Task) -> Brief:
        cost = self._cost
        lengths = _turns(cost.tokens, cost.sigma, task.seed, cost.searches, cost.cap)
        first = last = await engine.turn(lengths[0])
        for tokens in lengths[1:]:
            self._searches += 1
            await asyncio.sleep(self._costs.search_s)
            last = await engine.turn(tokens)
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

    def figures(self) -> list[float]:
        """Busy seconds, tokens, searches and running sequences times seconds, of all engines up to now."""
        for engine in self.engines:
            engine.catch_up()
        decodings = [engine.decoding for engine in self.engines]
        busy, tokens, slots = (sum(getattr(d, name) for d in decodings) for name in ("busy", "tokens", "slots"))
        return [busy, tokens, float(self._searches), slots]


class Judges:
    """Crew of judges that take `seconds` a block: the share `valid` of all questions is, and every other answer of a game is
    right, so that all of them are trained."""

    name = "judge"

    def __init__(self, count: int, seconds: float, valid: float) -> None:
        self.size, self._seconds, self._valid, self._asked = count, seconds, valid, 0
        self._free = [asyncio.Lock() for _ in range(count)]

    async def call(self, worker: int, method: str, *args: Any) -> Any:
        """See `Crew.call`."""
        if method == "answers":
            return True
        async with self._free[worker]:
            await asyncio.sleep(self._seconds)
        if method == "verify":
            self._asked += 1
            drawn = generator(self._asked, "valid").random(len(args[0]))
            return [Verdict(bool(draw < self._valid), "invalid") for draw in drawn], self._seconds
        return [Grade(place % 2 == 0, float(place % 2 == 0)) for place in range(len(args[1]))], self._seconds


class LearnerCrew:
    """Crew of one learner. `tokens`: seconds that it takes a token, all of its ranks together."""

    size = 1

    def __init__(self, name: str, seconds: float) -> None:
        self.name, self._seconds = f"learner-{name}", seconds
        self.busy, self.trained, self._serial = 0.0, 0, -1

    async def call(self, worker: int, method: str, *args: Any) -> Any:
        """See `Crew.call`."""
        if method == "place":
            return HERE
        if method in ("update", "update_all"):
            plans = args[0] if method == "update_all" else {"": args[0]}
            tokens = {role: _tokens(plan, args[1:]) for role, plan in plans.items()}
            spent = sum(tokens.values()) * self._seconds
            await asyncio.sleep(spent)
            self.busy += spent
            self.trained += sum(tokens.values())
            parcel, figures = self._publish()
            stats = {role: {"tokens": float(count), "busy": spent, **figures} for role, count in tokens.items()}
            return parcel, stats if method == "update_all" else stats[""]
        if method == "save":
            Path(args[0]).mkdir(parents=True)
        return self._publish() if method == "weights" else None

    def figures(self) -> list[float]:
        """Busy seconds, and tokens trained, up to now."""
        return [self.busy, float(self.trained)]

    def _publish(self) -> tuple[Parcel, dict[str, float]]:
        self._serial += 1
        return Parcel(OBJECT_STORE, self._serial, 0), {"serial": float(self._serial)}


class Books:
    """Stands for the ledger: hands out versions, and counts what was dropped, by cause."""

    name, size = "ledger", 1

    def __init__(self) -> None:
        self._versions: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    async def call(self, worker: int, method: str, *args: Any) -> Any:
        """See `Crew.call`."""
        if method == "next_version":
            self._versions[args[0]] += 1
            return self._versions[args[0]]
        if method == "advance":
            lost = (State.DROPPED.value, State.VOIDED.value)
            self.dropped.update(row.get("cause", "") for row in args[0] if row.get("state") in lost)
        return None


def _tokens(plan: Sequence[Any], blocks: Sequence[Block]) -> int:
    items = [PlanItem(*entry) for entry in plan]
    return sum(blocks[item.block][item.row] for item in items)


@functools.lru_cache(maxsize=500_000)
def _turns(tokens: float, sigma: float, seed: int, searches: tuple[int, int], cap: int) -> tuple[int, ...]:
    """Tokens of an episode's turns; each split and each sync of a plan plays the same ones."""
    return tuple(max(1, wanted) for wanted in turns(SimulatedConfig(tokens=tokens, sigma=sigma), seed, searches, cap))
