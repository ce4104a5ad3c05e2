"""Crews without workers: what a call would take is waited for in simulated time, and what it would say is made up.

Owns the made-up players, judges, learners and ledger of a simulation. Promises the answers that the coordinator's own code
needs of them, and busy seconds a worker. A player draws the lengths that a simulated engine would draw, from the same seeds.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ssp.base.episode import Grade, State, Task, Verdict
from ssp.base.seeds import generator
from ssp.capacity.plan.costs import Costs, RoleCosts
from ssp.config.role import SimulatedConfig
from ssp.engines.decoding import Decoding
from ssp.learning.tiny.actor import turns
from ssp.selfplay.records import Brief, PlanItem, PlayReport
from ssp.selfplay.transfer.parcel import OBJECT_STORE, Parcel, Place

Block = list[int]
"""What stands for the payload of a block: model tokens of each episode."""
HERE = Place("simulation", "127.0.0.1")


@dataclass(eq=False)
class _Playing:
    """An episode on its way: tokens of the turns that are left, and seconds that they take at least.

    Its turn ends after `ends` steps of the engine (`at` seconds, while it searches); before its start it wants `wants`.
    """

    task: Task
    play: _Play
    left: deque[int]
    rest: float
    wants: int = 0
    ends: float = math.inf
    at: float = math.inf
    tokens: int = 0
    searches: int = 0
    over: bool = False
    version_min: int = -1
    version_max: int = -1


@dataclass(eq=False)
class _Play:
    """One call of `play`: its episodes, the longest last, and how many are not over."""

    engine: Engine
    over: asyncio.Future[None]
    missing: int = 0
    longest: list[_Playing] = field(default_factory=list)


@dataclass(eq=False)
class Engine:
    """One engine: what it decodes, with which version, who searches (in the order of their ends), how many did."""

    decoding: Decoding[_Playing]
    room: asyncio.Semaphore
    version: int = -1
    timer: asyncio.TimerHandle | None = None
    asked: int = 0
    searching: deque[_Playing] = field(default_factory=deque)
    plays: list[_Play] = field(default_factory=list)


class Players:
    """Crew of the players of one role. `at_once`: blocks that one of them plays at a time.

    Between two calls nobody outside can see an engine, so what happens in it is worked off when a call comes, or when a
    play may be over: a simulation of many engines would spend its time on timers otherwise.
    """

    def __init__(self, name: str, count: int, cost: RoleCosts, costs: Costs, at_once: int) -> None:
        self.name, self.size = name, count
        self._cost, self._costs = cost, costs
        self._least = cost.pace.step(1)
        self.engines = [Engine(Decoding(cost.pace, _started), asyncio.Semaphore(at_once)) for _ in range(count)]

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
        now = loop.time()
        self._catch_up(engine, now)
        play = _Play(engine, loop.create_future(), len(tasks))
        episodes = [self._episode(play, task) for task in tasks]
        play.longest = sorted(episodes, key=lambda episode: episode.rest)
        engine.plays.append(play)
        for episode in episodes:
            self._turn(engine, now, episode)
        self._wind(engine, now)
        await play.over
        briefs = [self._brief(episode) for episode in episodes]
        return [episode.tokens for episode in episodes], PlayReport(briefs, {"busy": loop.time() - started})

    def figures(self) -> list[float]:
        """Busy seconds, tokens, searches and running sequences times seconds, of all engines up to now."""
        now = asyncio.get_running_loop().time()
        for engine in self.engines:
            self._catch_up(engine, now)
        decodings = [engine.decoding for engine in self.engines]
        return [
            sum(decoding.busy for decoding in decodings),
            sum(decoding.tokens for decoding in decodings),
            float(sum(engine.asked for engine in self.engines)),
            sum(decoding.slots for decoding in decodings),
        ]

    def _episode(self, play: _Play, task: Task) -> _Playing:
        cost = self._cost
        left = deque(_turns(cost.lengths.tokens, cost.lengths.sigma, task.seed, cost.searches, cost.cap))
        return _Playing(task, play, left, self._least * sum(left) + self._costs.search_s * (len(left) - 1))

    def _switch(self, engine: Engine, version: int) -> None:
        self._catch_up(engine, asyncio.get_running_loop().time())
        engine.version = max(version, engine.version)

    def _turn(self, engine: Engine, now: float, episode: _Playing) -> None:
        """The next turn of an episode begins."""
        tokens = episode.wants = episode.left.popleft()
        episode.rest -= self._least * tokens
        episode.at = math.inf
        episode.tokens += tokens
        engine.decoding.add(now, tokens, episode)

    def _catch_up(self, engine: Engine, now: float) -> None:
        """Work off what has happened up to now: ends of turns, and of searches."""
        decoding, searching = engine.decoding, engine.searching
        while True:
            found, ends = searching[0].at if searching else math.inf, decoding.next()
            if min(found, ends) > now:
                break
            if found < ends:
                self._turn(engine, found, searching.popleft())
            for episode in decoding.advance(ends) if ends <= found else ():
                self._ended(engine, ends, episode)
        decoding.advance(now)

    def _ended(self, engine: Engine, at: float, episode: _Playing) -> None:
        """A turn of an episode ends."""
        episode.version_max, episode.ends = engine.version, math.inf
        if episode.left:
            episode.searches += 1
            engine.asked += 1
            episode.at = at + self._costs.search_s
            episode.rest -= self._costs.search_s
            engine.searching.append(episode)
            return
        episode.over = True
        episode.play.missing -= 1
        if not episode.play.missing:
            engine.plays.remove(episode.play)
            episode.play.over.set_result(None)

    def _wind(self, engine: Engine, now: float) -> None:
        """Have a look when a play may be over."""
        if engine.timer is not None:
            engine.timer.cancel()
            engine.timer = None
        if engine.plays:
            at = min(self._soonest(play, now) for play in engine.plays)
            # Something ends at each look, so that there is an end of looks.
            happens = min(engine.decoding.next(), engine.searching[0].at if engine.searching else math.inf)
            engine.timer = asyncio.get_running_loop().call_at(max(at, happens), self._look, engine)

    def _soonest(self, play: _Play, now: float) -> float:
        """The earliest end of a play: of its longest episode, alone on the engine from now on."""
        while play.longest[-1].over:
            play.longest.pop()
        episode = play.longest[-1]
        if episode.at < math.inf:
            return episode.at + episode.rest
        left = min(episode.wants, episode.ends - play.engine.decoding.steps)
        return now + self._least * left + episode.rest

    def _look(self, engine: Engine) -> None:
        engine.timer = None
        now = asyncio.get_running_loop().time()
        self._catch_up(engine, now)
        self._wind(engine, now)

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


@functools.lru_cache(maxsize=500_000)
def _turns(tokens: float, sigma: float, seed: int, searches: tuple[int, int], cap: int) -> tuple[int, ...]:
    """Tokens of an episode's turns; each split and each sync of a plan plays the same ones."""
    return tuple(max(1, wanted) for wanted in turns(SimulatedConfig(tokens=tokens, sigma=sigma), seed, searches, cap))


def _started(episode: _Playing) -> None:
    """The first token of a turn is drawn."""
    engine = episode.play.engine
    episode.ends = engine.decoding.steps + episode.wants
    episode.version_max = engine.version
    if episode.version_min < 0:
        episode.version_min = engine.version


def _tokens(plan: Sequence[Any], blocks: Sequence[Block]) -> int:
    items = [PlanItem(*entry) for entry in plan]
    return sum(blocks[item.block][item.row] for item in items)
