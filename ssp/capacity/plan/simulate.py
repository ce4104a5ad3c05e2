"""One simulated run: the real coordinator over made-up crews, in a time that jumps.

The time that a call would take is waited for, and its answer is made up. Figures are of the rounds
in the middle. The first rounds, in which everything fills up, and the last ones, in which it runs
empty, are left out."""

import asyncio
import copy
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ssp.base.crew import Crew, LocalCrew
from ssp.base.episode import Grade, State, Verdict
from ssp.base.seeds import generator
from ssp.base.values import Values
from ssp.capacity.plan.costs import Costs, Split, judge_seconds, role_costs
from ssp.capacity.plan.jumping import run_jumping
from ssp.capacity.plan.players import PlannedPlayers, TokenCounts
from ssp.config.crews import MOST_BATCHES, at_once, bound, learners
from ssp.config.schema import Config
from ssp.learning.scored import Scored
from ssp.record.ledger.rows import NOTHING
from ssp.record.ledger.writer import LedgerWriter, Rows
from ssp.record.runfolder import RunFolder
from ssp.selfplay.coordinator import SelfPlay
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.crews.seams import Judges, Learners
from ssp.selfplay.evaluator import Evaluator
from ssp.selfplay.questions.mixed import GivenQuestions
from ssp.selfplay.report import Report, Sink
from ssp.selfplay.targets import TargetRow, Targets
from ssp.selfplay.transfer.parcel import Parcel

WARM = 1
"""Rounds that are left out at both ends, beside those in flight."""


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
    place = cfg.placement
    if split.shared:
        cfg.schedule.in_flight = False
        cfg.schedule.max_staleness = dict.fromkeys(cfg.schedule.max_staleness, 0)
        place.layout = "colocate" if split.colocated else "shared-base"
        place.engine_gpus = 0.5
    else:
        place.layout, place.engine_gpus = "separate", 1.0
    cfg.eval.every = 0
    cfg.void.limit = 1.0
    cfg.health.on_collapse = "warn"

    most = max(bound(cfg, role) for role in cfg.roles)
    edge = WARM + most + 1
    cfg.steps = 2 * edge + (rounds or max(4, 3 * (most + 1)))
    cfg.save.every = cfg.steps + 1
    with tempfile.TemporaryDirectory(prefix="ssp-plan-") as place_of_run:
        folder = RunFolder(Path(place_of_run))
        folder.checkpoints.mkdir(parents=True)
        return run_jumping(_play(cfg, split, costs, folder, edge))


async def _play(cfg: Config, split: Split, costs: Costs, folder: RunFolder, edge: int) -> Measured:
    players = {}
    for role in cfg.roles:
        cost = role_costs(cfg, role, costs)
        players[role] = PlannedPlayers(role, split.engines[role], cost, costs, at_once(cfg, role))

    # A call that a learner or the books do not write out does nothing.
    taught = {}
    crews: dict[str, Crew[Learners]] = {}
    for name, roles in learners(cfg).items():
        seconds = role_costs(cfg, name, costs).token / split.ranks[name]
        learner = _Learner(seconds)  # type: ignore[abstract]
        taught[name] = learner
        crew = LocalCrew(Learners, f"learner-{name}", [learner].__getitem__)
        crews |= dict.fromkeys(roles, crew)
    seconds = judge_seconds(cfg, costs)
    calls = itertools.count(1)
    judges = [_Judge(seconds, costs, cfg.game.attempts, calls) for _ in range(split.judges)]
    books = _Books()  # type: ignore[abstract]
    cast = Cast(
        players=dict(players),
        judges=LocalCrew(Judges, "judge", judges.__getitem__, len(judges)),
        learners=crews,
        ledger=LocalCrew(LedgerWriter, "ledger", [books].__getitem__),
    )

    batch, question = (cfg.asking.batch, "") if cfg.asks else (cfg.answering.batch, "what ?")
    row = TargetRow("it", question, ("it",), ROW)
    size = cfg.answering.batch
    most = size * max(cfg.game.refill, MOST_BATCHES)
    asked = [TargetRow("it", "what ?", ("it",))] * most
    given = GivenQuestions(asked, cfg.game.given, size, cfg.seed)
    targets = Targets([row], batch, cfg.seed, each=cfg.game.proposals, given=given)
    sink = _Rows(players, taught)  # type: ignore[abstract]  # nobody listens to the rest
    report = Report(sink, None, 1, cfg.spec)
    await SelfPlay(cfg, cast, folder, targets, report, Evaluator(cfg, [])).run()
    measured = sink.measured(edge, cfg.steps - edge)
    measured.dropped = dict(books.dropped)
    return measured


ROW = {"document": "it", "searches": "1"}
"""What a row of any kind says beside its target."""


class _Judge:
    """Takes `seconds` a block. The share `valid` of all questions is valid. Of the share `spread`
    every other answer is right, so that all of them are trained; of the rest none is. `calls`:
    counts the calls of all judges."""

    def __init__(self, seconds: float, costs: Costs, attempts: int, calls: Iterator[int]) -> None:
        self._seconds, self._costs, self._attempts, self._calls = seconds, costs, attempts, calls
        self._free = asyncio.Lock()

    async def verify(
        self, block: TokenCounts, targets: Sequence[str], *live: Any
    ) -> tuple[list[Verdict], float]:
        await self._work()
        draws = generator(next(self._calls), "valid").random(len(block))
        valid = [bool(draw < self._costs.valid) for draw in draws]
        return [Verdict(one, "" if one else "invalid") for one in valid], self._seconds

    async def check(
        self, block: TokenCounts, subjects: Sequence[Any], stage: str
    ) -> tuple[list[Verdict], float]:
        return await self.verify(block, [])

    async def grade(self, block: TokenCounts, items: Sequence[Any]) -> tuple[list[Grade], float]:
        await self._work()
        groups = -(-len(items) // self._attempts)
        draws = generator(next(self._calls), "spread").random(groups)
        grades = []
        for at in range(len(items)):
            spread = draws[at // self._attempts] < self._costs.spread
            right = bool(at % 2 == 0 and spread)
            grades.append(Grade(right, float(right)))
        return grades, self._seconds

    async def answers(self) -> bool:
        return True

    async def _work(self) -> None:
        async with self._free:
            await asyncio.sleep(self._seconds)


class _Learner(Learners):
    """`seconds`: what it takes for a token, with all of its ranks together."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._serial = -1
        self.busy = 0.0
        self.trained = 0

    async def update(
        self, samples: Mapping[str, Sequence[Scored]], names: Sequence[str], *blocks: TokenCounts
    ) -> tuple[Parcel, dict[str, Values]]:
        by_name = dict(zip(names, blocks, strict=True))
        tokens = {}
        for role, rows in samples.items():
            tokens[role] = sum(by_name[sample.block][sample.row] for sample in rows)
        total = sum(tokens.values())
        spent = total * self._seconds
        await asyncio.sleep(spent)
        self.busy += spent
        self.trained += total

        parcel, serial = await self.weights()
        figures = {}
        for role, count in tokens.items():
            figures[role] = {"tokens": float(count), "busy": spent, **serial}
        return parcel, figures

    async def weights(self) -> tuple[Parcel, Values]:
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
        for change in changes:
            row = {**shared, **change}
            if row.get("state") in (State.DROPPED.value, State.VOIDED.value):
                self.dropped[row.get("cause", "")] += 1
        return 0


class _Rows(Sink):
    """Sink of the run's report (`ssp.selfplay.report.Sink`): its rows, and at the end of each round
    what everybody did."""

    def __init__(self, players: dict[str, PlannedPlayers], taught: dict[str, _Learner]) -> None:
        self._players, self._taught = players, taught
        self._rows: list[tuple[int, str, Values]] = []
        self._marks: dict[int, dict[str, list[float]]] = {}

    def write(self, step: int, role: str, values: Values) -> None:
        self._rows.append((step, role, values))
        if role == "game":
            mark = {"time": [asyncio.get_running_loop().time()]}
            mark |= {name: crew.figures() for name, crew in self._players.items()}
            for name, learner in self._taught.items():
                mark[f"learner-{name}"] = [learner.busy, learner.trained]
            self._marks[step] = mark

    def measured(self, first: int, last: int) -> Measured:
        """Figures of the rounds after `first`, up to `last`."""

        def spent(name: str) -> list[float]:
            both = zip(self._marks[first][name], self._marks[last][name], strict=True)
            return [after - before for before, after in both]

        rounds = last - first
        (wall,) = spent("time")
        measured = Measured(step=wall / rounds, rounds=rounds)
        wall = wall or 1e-9  # where all that was typed takes no time
        for role, crew in self._players.items():
            busy, tokens, searches, slots = spent(role)
            pace = crew.engines[0].decoding.pace
            measured.bubble[role] = 1 - tokens * pace.full / wall / crew.size
            measured.fill[role] = slots / max(busy, 1e-9) / pace.sequences
            measured.generated[role] = tokens
            measured.tokens += tokens / wall
            measured.searches += searches / wall
        for name in self._taught:
            busy, trained = spent(f"learner-{name}")
            measured.bubble[f"learner-{name}"] = 1 - busy / wall
            measured.trained[name] = int(trained)

        ages: dict[str, list[float]] = {role: [] for role in self._players}
        oldest = dict.fromkeys(self._players, 0.0)
        for step, name, values in self._rows:
            middle = first < step <= last
            if name == "game" and middle:
                measured.games += int(values["game/played"])
            if name in oldest:
                oldest[name] = max(oldest[name], values["staleness/max"])
                if middle:
                    ages[name].append(values["staleness/mean"])
        for role, means in ages.items():
            measured.staleness[role] = (sum(means) / len(means), oldest[role])
        return measured
