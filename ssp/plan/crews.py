"""Crews without workers: what a call would take is waited for in simulated time, and what it would say is made up.

Owns the made-up players, judges, learners and ledger of a simulation. Promises the answers that the coordinator's own code
needs of them, and busy seconds a worker. A player draws the lengths that a simulated engine would draw, from the same seeds.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssp.engines.decoding import Decoding
from ssp.episode import Grade, State, Task, Verdict
from ssp.plan.costs import Costs, RoleCosts
from ssp.seeds import generator
from ssp.selfplay.records import Brief, PlanItem, PlayReport
from ssp.tiny.actor import turns
from ssp.transfer.parcel import OBJECT_STORE, Parcel, Place

Block = list[int]
"""What stands for the payload of a block: model tokens of each episode."""
HERE = Place("simulation", "127.0.0.1")


@dataclass(eq=False)
class _Playing:
    """An episode on its way: tokens of the turns that are left."""

    task: Task
    left: deque[int]
    play: _Play
    tokens: int = 0
    searches: int = 0
    version_min: int = -1
    version_max: int = -1


@dataclass(eq=False)
class _Play:
    """One call of `play`: how many of its episodes are not over."""

    missing: int
    over: asyncio.Future[None]


@dataclass(eq=False)
class Engine:
    """One engine: what it decodes, with which version, how many searches its episodes made."""

    decoding: Decoding[_Playing]
    room: asyncio.Semaphore
    version: int = -1
    timer: asyncio.TimerHandle | None = None
    asked: int = 0


class Players:
    """Crew of the players of one role. `at_once`: blocks that one of them plays at a time."""

    def __init__(self, name: str, count: int, cost: RoleCosts, costs: Costs, at_once: int) -> None:
        self.name, self.size = name, count
        self._cost, self._costs = cost, costs
        self.engines = [Engine(Decoding(cost.pace, self._started), asyncio.Semaphore(at_once)) for _ in range(count)]
        self._of: dict[int, Engine] = {}

    async def call(self, worker: int, method: str, *args: Any) -> Any:
        """See `Crew.call`."""
        engine = self.engines[worker]
        if method == "play":
            tasks, _, version, _ = args
            async with engine.room:
                return await self._play(engine, tasks, version)
        if method == "refresh":
            await asyncio.sleep(self._costs.sync_s)
            self._switch(engine, args[0])
            return {}
        return HERE if method == "place" else None

    async def _play(self, engine: Engine, tasks: Sequence[Task], version: int) -> tuple[Block, PlayReport]:
        loop = asyncio.get_running_loop()
        started = loop.time()
        if version > engine.version:
            await asyncio.sleep(self._costs.sync_s)
            self._switch(engine, version)
        play = _Play(len(tasks), loop.create_future())
        cost = self._cost
        episodes = [
            _Playing(task, deque(turns(cost.lengths, task.seed, cost.searches, cost.cap)), play) for task in tasks
        ]
        for episode in episodes:
            self._of[id(episode)] = engine
            self._turn(engine, episode)
        await play.over
        briefs = [self._brief(episode) for episode in episodes]
        return [episode.tokens for episode in episodes], PlayReport(briefs, {"busy": loop.time() - started})

    def figures(self) -> list[float]:
        """Busy seconds, tokens, searches and running sequences times seconds, of all engines up to now."""
        for engine in self.engines:
            self._ended(engine)
            self._wind(engine)
        decodings = [engine.decoding for engine in self.engines]
        return [
            sum(decoding.busy for decoding in decodings),
            sum(decoding.tokens for decoding in decodings),
            float(sum(engine.asked for engine in self.engines)),
            sum(decoding.slots for decoding in decodings),
        ]

    def _switch(self, engine: Engine, version: int) -> None:
        self._ended(engine)
        engine.version = max(version, engine.version)

    def _turn(self, engine: Engine, episode: _Playing) -> None:
        """Ask for the next turn."""
        now = asyncio.get_running_loop().time()
        tokens = max(1, episode.left.popleft())
        episode.tokens += tokens
        self._ended(engine)
        engine.decoding.add(now, tokens, episode)
        self._wind(engine)

    def _started(self, episode: _Playing) -> None:
        version = self._of[id(episode)].version
        episode.version_max = version
        if episode.version_min < 0:
            episode.version_min = version

    def _ended(self, engine: Engine) -> None:
        """Take what has ended up to now."""
        loop = asyncio.get_running_loop()
        for episode in engine.decoding.advance(loop.time()):
            episode.version_max = engine.version
            if episode.left:
                episode.searches += 1
                engine.asked += 1
                loop.call_later(self._costs.search_s, self._turn, engine, episode)
                continue
            del self._of[id(episode)]
            episode.play.missing -= 1
            if not episode.play.missing:
                episode.play.over.set_result(None)

    def _wind(self, engine: Engine) -> None:
        """Have a look when the next turn ends; a look that comes too early does no harm."""
        at = engine.decoding.next()
        if at == math.inf or (engine.timer is not None and not engine.timer.cancelled() and engine.timer.when() <= at):
            return
        if engine.timer is not None:
            engine.timer.cancel()
        engine.timer = asyncio.get_running_loop().call_at(at, self._look, engine)

    def _look(self, engine: Engine) -> None:
        engine.timer = None
        self._ended(engine)
        self._wind(engine)

    def _brief(self, episode: _Playing) -> Brief:
        task = episode.task
        return Brief(
            id=task.id,
            game=task.game,
            role=task.role,
            attempt=task.attempt,
            final=f"{task.id} ?",
            outcome=None,
            cause="",
            stopped="final",
            searches=episode.searches,
            tokens=episode.tokens,
            length=episode.tokens,
            version_min=episode.version_min,
            version_max=episode.version_max,
            file="",
            row=0,
        )


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
