"""One simulated run: the real coordinator over made-up crews, in a time that jumps.

What a call would take is waited for, what it would say is made up; players decode by the arithmetic
of simulated engines (`ssp.engines.simulated`) the lengths that such engines would draw. Figures are
of the rounds in the middle: the first, in which everything fills up, and the last, in which it runs
empty, are left out."""

import asyncio
import copy
import functools
import itertools
import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ssp.base.crew import LocalCrew
from ssp.base.episode import Grade, State, Task, Verdict
from ssp.base.played import Brief
from ssp.base.seeds import generator
from ssp.capacity.plan.costs import Costs, RoleCosts, Split, judge_seconds, role_costs
from ssp.capacity.plan.jumping import run_jumping
from ssp.config.crews import at_once, bound, learners
from ssp.config.schema import Config
from ssp.engines.simulated import DecodePace, Decoding
from ssp.learning.samples import Sample
from ssp.learning.tiny.actor import turns
from ssp.record.ledger.rows import NOTHING
from ssp.record.ledger.writer import LedgerWriter, Rows
from ssp.record.runfolder import RunFolder
from ssp.selfplay.coordinator import SelfPlay
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.crews.seams import Judges, Learners, Players
from ssp.selfplay.evaluator import Evaluator
from ssp.selfplay.records import PlayOrder, PlayReport
from ssp.selfplay.report import Report, Sink
from ssp.selfplay.targets import TargetRow, Targets
from ssp.selfplay.transfer.parcel import Parcel

WARM = 1
"""Rounds that are left out at both ends, beside those in flight."""
_Block = list[int]  # what stands for a payload: model tokens of each episode


@dataclass
class Measured:
    """What a simulation gave, by role, or by `learner-<name>`. Seconds are simulated ones, tokens
    and searches a second. `bubble`: share of its time that an engine would not need at full
    occupancy; of a learner: idle. `fill`: running sequences as a share of an engine's most."""

    step: float = 0.0
    rounds: int = 0
    games: int = 0
    tokens: float = 0.0
    searches: float = 0.0
    trained: dict[str, int] = field(default_factory=dict)
    generated: dict[str, float] = field(default_factory=dict)
    fill: dict[str, float] = field(default_factory=dict)
    bubble: dict[str, float] = field(default_factory=dict)
    staleness: dict[str, tuple[float, float]] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)


def simulate(cfg: Config, split: Split, costs: Costs, rounds: int | None = None) -> Measured:
    """Play `rounds` measured rounds (default: three times those in flight). Where learners take
    turns, bounds are 0."""
    cfg = copy.deepcopy(cfg)
    if split.shared:
        cfg.schedule.in_flight = False
        for role in cfg.roles:
            cfg.schedule.max_staleness[role] = 0
    most = max(bound(cfg, role) for role in cfg.roles)
    edge = WARM + most + 1
    cfg.steps = 2 * edge + (rounds or max(4, 3 * (most + 1)))
    cfg.eval.every = 0
    cfg.save.every = cfg.steps + 1
    cfg.void.limit = 1.0
    cfg.health.on_collapse = "warn"
    cfg.placement.layout, cfg.placement.engine_gpus = (
        ("shared-base", 0.5) if split.shared else ("separate", 1.0)
    )
    with tempfile.TemporaryDirectory(prefix="ssp-plan-") as place:
        return run_jumping(_play(cfg, split, costs, RunFolder(Path(place)), edge))


async def _play(cfg: Config, split: Split, costs: Costs, folder: RunFolder, edge: int) -> Measured:
    players = {
        role: _Fleet(
            role, split.engines[role], role_costs(cfg, role, costs), costs, at_once(cfg, role)
        )
        for role in cfg.roles
    }
    # A call that one of these does not write out does nothing.
    taught = {}
    for name in learners(cfg):
        seconds = role_costs(cfg, name, costs).token / split.ranks[name]
        taught[name] = _Learner(seconds)  # type: ignore[abstract]
    books = _Books()  # type: ignore[abstract]
    judging, asked = judge_seconds(cfg, costs), itertools.count(1)

    def learner(name: str) -> LocalCrew[Learners]:
        return LocalCrew(Learners, f"learner-{name}", lambda i: taught[name])

    cast = Cast(
        players=dict(players),
        judges=LocalCrew(
            Judges,
            "judge",
            lambda i: _Judge(judging, costs, cfg.game.attempts, asked),
            split.judges,
        ),
        learners={role: learner(name) for name, roles in learners(cfg).items() for role in roles},
        ledger=LocalCrew(LedgerWriter, "ledger", lambda i: books),
    )
    folder.checkpoints.mkdir(parents=True)
    block = cfg.asking if cfg.asks else cfg.answering
    question = "" if cfg.asks else "what ?"
    targets = Targets(
        [TargetRow("it", question, ("it",))], block.batch, cfg.seed, each=cfg.game.proposals
    )
    rows = _Rows(players, taught)  # type: ignore[abstract]  # nobody listens to the rest
    await SelfPlay(
        cfg, cast, folder, targets, Report(rows, None, 1, cfg.spec), Evaluator(cfg, [])
    ).run()
    found = rows.measured(edge, cfg.steps - edge)
    found.dropped = dict(books.dropped)
    return found


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
        """End the turns that end up to now, or up to `at`; gives that time."""
        now = max(at, asyncio.get_running_loop().time())
        for turn in self.decoding.advance(now):
            turn.last = self.version
            turn.over.set_result(None)
        return now

    def _started(self, turn: _PlannedTurn) -> None:
        turn.first = self.version

    def _wind(self) -> None:
        """Look when the next turn may end; one that began meanwhile only makes it later."""
        at = self.decoding.next()
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = (
            None if at == math.inf else asyncio.get_running_loop().call_at(at, self._look, at)
        )

    def _look(self, at: float) -> None:
        self._timer = None
        self.catch_up(at)
        self._wind()


class _Fleet(LocalCrew[Players]):
    """The players of one role. `at_once`: blocks that one of them plays at a time."""

    def __init__(self, name: str, count: int, cost: RoleCosts, costs: Costs, at_once: int) -> None:
        self.engines = [_Engine(cost.pace, at_once) for _ in range(count)]

        def player(i: int) -> Players:
            return _SimulatedPlayer(self.engines[i], cost, costs)  # type: ignore[abstract]

        super().__init__(Players, name, player, count)

    def figures(self) -> list[float]:
        """Busy seconds, tokens, searches and running sequences times seconds, of all engines up to
        now."""
        for engine in self.engines:
            engine.catch_up()
        decodings = [engine.decoding for engine in self.engines]
        busy, tokens, slots = (
            sum(getattr(d, name) for d in decodings) for name in ("busy", "tokens", "slots")
        )
        return [busy, tokens, float(sum(player.searches for player in self.workers)), slots]


class _SimulatedPlayer(Players):  # `sleep` and `wake` do nothing
    def __init__(self, engine: _Engine, cost: RoleCosts, costs: Costs) -> None:
        self._engine, self._cost, self._costs, self.searches = engine, cost, costs, 0

    async def play(
        self, tasks: Sequence[Task], order: PlayOrder, version: int, parcel: Any
    ) -> tuple[_Block, PlayReport]:
        loop = asyncio.get_running_loop()
        async with self._engine.room:
            started = loop.time()
            if version > self._engine.version:
                await self.refresh(version, parcel)
            briefs = await asyncio.gather(*(self._episode(task) for task in tasks))
            return [brief.tokens for brief in briefs], PlayReport(
                list(briefs), {"busy": loop.time() - started}
            )

    async def refresh(self, version: int, parcel: Any) -> dict[str, float]:
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
        told: dict[str, Any] = {
            "final": f"{task.id} ?",
            "outcome": None,
            "cause": "",
            "stopped": "final",
        }
        told |= {"searches": len(lengths) - 1, "tokens": sum(lengths), "length": sum(lengths)}
        told |= {"version_min": first.first, "version_max": last.last, "file": "", "row": 0}
        return Brief(task.id, task.game, task.role, task.attempt, **told)


@functools.lru_cache(maxsize=500_000)
def _turns(
    tokens: float, sigma: float, seed: int, searches: tuple[int, int], cap: int
) -> tuple[int, ...]:
    """Tokens of an episode's turns; each split of a plan plays the same ones."""
    return tuple(max(1, wanted) for wanted in turns(tokens, sigma, seed, searches, cap))


class _Judge:
    """Takes `seconds` a block: the share `valid` of all questions is. Of the share `spread` every
    other answer is right, so that all of them are trained, of the rest none. `asked`: counts the
    calls of all judges."""

    def __init__(self, seconds: float, costs: Costs, attempts: int, asked: Iterator[int]) -> None:
        self._seconds, self._costs, self._attempts, self._asked = seconds, costs, attempts, asked
        self._free = asyncio.Lock()

    async def verify(
        self, block: _Block, targets: Sequence[str], *live: Any
    ) -> tuple[list[Verdict], float]:
        await self._work()
        drawn = generator(next(self._asked), "valid").random(len(block))
        return [Verdict(bool(draw < self._costs.valid), "invalid") for draw in drawn], self._seconds

    async def grade(self, block: _Block, items: Sequence[Any]) -> tuple[list[Grade], float]:
        await self._work()
        drawn = generator(next(self._asked), "spread").random(-(-len(items) // self._attempts))
        rights = [
            at % 2 == 0 and drawn[at // self._attempts] < self._costs.spread
            for at in range(len(items))
        ]
        return [Grade(bool(right), float(right)) for right in rights], self._seconds

    async def answers(self) -> bool:
        return True

    async def _work(self) -> None:
        async with self._free:
            await asyncio.sleep(self._seconds)


class _Learner(Learners):
    """`seconds`: that it takes a token, all of its ranks together."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.busy, self.trained, self._serial = 0.0, 0, -1

    async def update(
        self, samples: Mapping[str, Sequence[Sample]], names: Sequence[str], *blocks: _Block
    ) -> tuple[Parcel, dict[str, dict[str, float]]]:
        by_name = dict(zip(names, blocks, strict=True))
        tokens = {
            role: sum(by_name[one.block][one.row] for one in mine) for role, mine in samples.items()
        }
        spent = sum(tokens.values()) * self._seconds
        await asyncio.sleep(spent)
        self.busy += spent
        self.trained += sum(tokens.values())
        parcel, figures = await self.weights()
        return parcel, {
            role: {"tokens": float(count), "busy": spent, **figures}
            for role, count in tokens.items()
        }

    async def weights(self) -> tuple[Parcel, dict[str, float]]:
        self._serial += 1
        return Parcel(), {"serial": float(self._serial)}

    async def save(self, folder: str, meta: dict[str, Any]) -> None:
        Path(folder).mkdir(parents=True)

    export = save


class _Books(LedgerWriter):
    """Stands for the ledger: hands out versions, and counts what was dropped, by cause. The rest is
    not written."""

    def __init__(self) -> None:
        self._versions: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    async def next_version(self, role: str, *made: Any) -> int:
        self._versions[role] += 1
        return self._versions[role]

    async def advance(self, changes: Rows, shared: Mapping[str, Any] = NOTHING, /) -> int:
        lost = (State.DROPPED.value, State.VOIDED.value)
        rows = [{**shared, **change} for change in changes]
        self.dropped.update(row.get("cause", "") for row in rows if row.get("state") in lost)
        return 0


class _Rows(Sink):
    """Sink of the run's report (`ssp.selfplay.report.Sink`): its rows, and at the end of each round
    what everybody did."""

    def __init__(self, players: dict[str, _Fleet], taught: dict[str, _Learner]) -> None:
        self._players, self._taught = players, taught
        self._rows: list[tuple[int, str, dict[str, float]]] = []
        self._marks: dict[int, list[list[float]]] = {}

    def write(self, step: int, role: str, values: dict[str, float]) -> None:
        self._rows.append((step, role, values))
        if role == "game":
            played = [crew.figures() for crew in self._players.values()]
            learned = [[learner.busy, float(learner.trained)] for learner in self._taught.values()]
            self._marks[step] = [[asyncio.get_running_loop().time()], *played, *learned]

    def measured(self, first: int, last: int) -> Measured:
        """Figures of the rounds after `first`, up to `last`."""
        marks = zip(self._marks[first], self._marks[last], strict=True)
        (wall,), *spent = [
            [after - before for before, after in zip(*pair, strict=True)] for pair in marks
        ]
        found = Measured(step=wall / (last - first), rounds=last - first)
        wall = wall or 1e-9  # where all that was typed takes no time
        for (role, crew), (busy, tokens, searches, slots) in zip(
            self._players.items(), spent, strict=False
        ):
            pace = crew.engines[0].decoding.pace
            found.bubble[role] = 1 - tokens * pace.full / wall / crew.size
            found.fill[role] = slots / max(busy, 1e-9) / pace.sequences
            found.generated[role] = tokens
            found.tokens += tokens / wall
            found.searches += searches / wall
        for name, (busy, trained) in zip(self._taught, spent[len(self._players) :], strict=True):
            found.bubble[f"learner-{name}"] = 1 - busy / wall
            found.trained[name] = int(trained)
        middle = [(role, values) for step, role, values in self._rows if first < step <= last]
        found.games = int(sum(values["game/played"] for role, values in middle if role == "game"))
        for role in self._players:
            mean = [values["staleness/mean"] for name, values in middle if name == role]
            most = [values["staleness/max"] for _, name, values in self._rows if name == role]
            found.staleness[role] = (sum(mean) / len(mean), max(most))
        return found
