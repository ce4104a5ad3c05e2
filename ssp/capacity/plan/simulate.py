"""One simulated run: the real coordinator over made-up crews, in a time that jumps.

Owns the wiring, and what is measured. Promises that every figure is of the rounds in the middle: the first ones, in which
everything fills up, and the last ones, in which it runs empty, are left out. Refuses to choose where anything goes.
"""

from __future__ import annotations

import asyncio
import copy
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from ssp.base.crew import LocalCrew
from ssp.base.episode import PROPOSER, SOLVER
from ssp.capacity.plan import clock
from ssp.capacity.plan.costs import Costs, judge_seconds, role_costs
from ssp.capacity.plan.crews import Books, Judges, LearnerCrew, Players
from ssp.capacity.plan.split import Split
from ssp.config.crews import at_once, learners
from ssp.config.schema import Config
from ssp.record.runfolder import RunFolder
from ssp.selfplay.cast import Cast
from ssp.selfplay.coordinator import SelfPlay
from ssp.selfplay.evaluator import Evaluator
from ssp.selfplay.queues import Queue
from ssp.selfplay.report import Report
from ssp.selfplay.targets import Item, Targets

WARM = 1
"""Rounds that are left out at both ends, beside those in flight."""


@dataclass
class Measured:
    """What a simulation gave. Seconds are simulated ones; `idle` and `fill` by kind of worker.

    `fill`: of an engine, running sequences as a share of its most. `bubble`: share of its time that it would not need at
    full occupancy; of a learner the same as idle.
    """

    step: float = 0.0
    rounds: int = 0
    games: int = 0
    tokens: float = 0.0
    searches: float = 0.0
    trained: dict[str, int] = field(default_factory=dict)
    generated: dict[str, float] = field(default_factory=dict)
    idle: dict[str, float] = field(default_factory=dict)
    fill: dict[str, float] = field(default_factory=dict)
    bubble: dict[str, float] = field(default_factory=dict)
    staleness: dict[str, tuple[float, float]] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)


def simulate(cfg: Config, split: Split, costs: Costs, rounds: int | None = None) -> Measured:
    """Play `rounds` measured rounds of `cfg` on `split`; by default three times as many as may be in flight. Where engines
    and learners take turns, both bounds are 0."""
    cfg = copy.deepcopy(cfg)
    if split.shared:
        cfg.schedule.in_flight = False
        for role in cfg.roles:
            setattr(cfg.schedule.max_staleness, role, 0)
    most = max(getattr(cfg.schedule.max_staleness, role) for role in cfg.roles)
    edge = WARM + most + 1
    cfg.steps = 2 * edge + (rounds or max(4, 3 * (most + 1)))
    cfg.eval.every = cfg.eval.anchor_every = 0
    cfg.save.every = cfg.steps + 1
    cfg.void.limit, cfg.referee.alarm_patience = 1.0, cfg.steps + 1
    cfg.health.on_collapse = "warn"
    cfg.transfer.kind = "object_store"
    cfg.placement.layout, cfg.placement.engine_gpus = ("shared-base", 0.5) if split.shared else ("separate", 1.0)
    with tempfile.TemporaryDirectory(prefix="ssp-plan-") as place:
        return clock.run(_Run(cfg, split, costs, Path(place), edge).play())


class _Run:
    def __init__(self, cfg: Config, split: Split, costs: Costs, place: Path, edge: int) -> None:
        self._cfg, self._edge = cfg, edge
        self._rows: list[tuple[int, str, dict[str, float]]] = []
        self._marks: dict[int, list[float]] = {}
        self._players = {
            role: Players(role, split.engines[role], role_costs(cfg, role, costs), costs, at_once(cfg, role))
            for role in cfg.roles
        }
        self._learners = {
            name: LearnerCrew(name, role_costs(cfg, name, costs).token / split.ranks[name]) for name in learners(cfg)
        }
        self._books = Books()
        budget = cfg.queue
        nobody = LocalCrew(PROPOSER, lambda i: None, 0)
        cast = Cast(
            proposers=self._players.get(PROPOSER, nobody),
            solvers=self._players[SOLVER],
            judges=Judges(split.judges, judge_seconds(cfg, costs), costs.valid),
            learners={role: self._learners[name] for name, roles in learners(cfg).items() for role in roles},
            queues={
                name: LocalCrew(f"queue-{name}", lambda i: Queue(budget.items, budget.bytes)) for name in cfg.roles
            },
            ledger=self._books,
        )
        folder = RunFolder(place)
        folder.checkpoints.mkdir(parents=True)
        block = cfg.proposer if PROPOSER in cfg.roles else cfg.solver
        question = "" if PROPOSER in cfg.roles else "what ?"
        targets = Targets([Item("it", question, ("it",))], block.batch, cfg.seed, each=cfg.game.proposals)
        report = Report(self, None, 1, cfg.roles)
        self._game = SelfPlay(cfg, cast, folder, targets, report, Evaluator(cfg, []))

    async def play(self) -> Measured:
        """The whole run."""
        await self._game.run()
        return self._measured()

    def write(self, step: int, role: str, values: dict[str, float]) -> None:
        """A row of the report (`ssp.selfplay.report.Sink`)."""
        self._rows.append((step, role, values))
        if role == "game":
            self._marks[step] = self._now()

    def restart(self, step: int) -> None:
        """Nothing was written before."""

    def event(self, text: str) -> None:
        """Nobody listens."""

    def span(self, track: str, name: str, start: float, end: float) -> None:
        """These are seconds of another clock."""

    def _now(self) -> list[float]:
        """The time, and what everybody did so far: the figures of each role's players, busy seconds and tokens a learner."""
        found = [asyncio.get_running_loop().time()]
        for crew in self._players.values():
            found += crew.figures()
        return found + [value for crew in self._learners.values() for value in (crew.busy, float(crew.trained))]

    def _measured(self) -> Measured:
        first, last = self._edge, self._cfg.steps - self._edge
        spent = [after - before for before, after in zip(self._marks[first], self._marks[last], strict=True)]
        wall, rest = spent[0], spent[1:]
        found = Measured(step=wall / (last - first), rounds=last - first)
        for role, crew in self._players.items():
            busy, tokens, searches, slots = rest[:4]
            rest = rest[4:]
            pace = crew.engines[0].decoding.pace
            found.idle[role] = 1 - busy / wall / crew.size
            found.bubble[role] = 1 - tokens * pace.full / wall / crew.size
            found.fill[role] = slots / max(busy, 1e-9) / pace.sequences
            found.generated[role] = tokens
            found.tokens += tokens / wall
            found.searches += searches / wall
        for name in self._learners:
            busy, trained = rest[:2]
            rest = rest[2:]
            found.idle[f"learner-{name}"] = found.bubble[f"learner-{name}"] = 1 - busy / wall
            found.trained[name] = int(trained)
        middle = [(role, values) for step, role, values in self._rows if first < step <= last]
        found.games = int(sum(values["game/played"] for role, values in middle if role == "game"))
        for role in self._cfg.roles:
            mean = [values["staleness/mean"] for name, values in middle if name == role]
            most = [values["staleness/max"] for _, name, values in self._rows if name == role]
            found.staleness[role] = (sum(mean) / len(mean), max(most))
        found.dropped = dict(self._books.dropped)
        return found
