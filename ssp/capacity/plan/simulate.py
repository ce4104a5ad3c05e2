"""One simulated run: the real coordinator over made-up crews, in a time that jumps.

Every figure is of the rounds in the middle: the first ones, in which everything fills up, and the last ones, in which it
runs empty, are left out.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from ssp.base.crew import LocalCrew
from ssp.base.episode import PROPOSER
from ssp.capacity.plan import clock
from ssp.capacity.plan.costs import Costs, judge_seconds, role_costs
from ssp.capacity.plan.crews import Books, Fleet, Judge, Learner
from ssp.capacity.plan.split import Split
from ssp.config.crews import at_once, learners
from ssp.config.schema import Config
from ssp.record.ledger.writer import LedgerWriter
from ssp.record.runfolder import RunFolder
from ssp.selfplay.coordinator import SelfPlay
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.crews.seams import Judges, Learners
from ssp.selfplay.evaluator import Evaluator
from ssp.selfplay.queues import Queue
from ssp.selfplay.queues.worker import QueueWorker
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
        return clock.run(_play(cfg, split, costs, RunFolder(Path(place)), edge))


async def _play(cfg: Config, split: Split, costs: Costs, folder: RunFolder, edge: int) -> Measured:
    players = {
        role: Fleet(role, split.engines[role], role_costs(cfg, role, costs), costs, at_once(cfg, role))
        for role in cfg.roles
    }
    taught = {name: Learner(role_costs(cfg, name, costs).token / split.ranks[name]) for name in learners(cfg)}
    books, budget = Books(), cfg.queue  # type: ignore[abstract]  # what it does not count, it does not answer
    judging, asked = judge_seconds(cfg, costs), itertools.count(1)

    def learner(name: str) -> LocalCrew[Learners]:
        return LocalCrew(Learners, f"learner-{name}", lambda i: taught[name])

    def queue(role: str) -> LocalCrew[QueueWorker]:
        return LocalCrew(QueueWorker, f"queue-{role}", lambda i: Queue(budget.items, budget.bytes))

    cast = Cast(
        players=dict(players),
        judges=LocalCrew(Judges, "judge", lambda i: Judge(judging, costs.valid, asked), split.judges),
        learners={role: learner(name) for name, roles in learners(cfg).items() for role in roles},
        queues={role: queue(role) for role in cfg.roles},
        ledger=LocalCrew(LedgerWriter, "ledger", lambda i: books),
    )
    folder.checkpoints.mkdir(parents=True)
    block = cfg.proposer if PROPOSER in cfg.roles else cfg.solver
    question = "" if PROPOSER in cfg.roles else "what ?"
    targets = Targets([Item("it", question, ("it",))], block.batch, cfg.seed, each=cfg.game.proposals)
    rows = _Rows(players, taught)
    await SelfPlay(cfg, cast, folder, targets, Report(rows, None, 1, cfg.roles), Evaluator(cfg, [])).run()
    found = rows.measured(edge, cfg.steps - edge)
    found.dropped = dict(books.dropped)
    return found


class _Rows:
    """Sink of the run's report (`ssp.selfplay.report.Sink`): its rows, and at the end of each round what everybody did."""

    def __init__(self, players: dict[str, Fleet], taught: dict[str, Learner]) -> None:
        self._players, self._taught = players, taught
        self._rows: list[tuple[int, str, dict[str, float]]] = []
        self._marks: dict[int, list[list[float]]] = {}

    def write(self, step: int, role: str, values: dict[str, float]) -> None:
        """A row of the report."""
        self._rows.append((step, role, values))
        if role == "game":
            now = [asyncio.get_running_loop().time()]
            played = [crew.figures() for crew in self._players.values()]
            self._marks[step] = [now, *played, *(crew.figures() for crew in self._taught.values())]

    def restart(self, step: int) -> None:
        """Nothing was written before."""

    def event(self, text: str) -> None:
        """Nobody listens."""

    def span(self, track: str, name: str, start: float, end: float) -> None:
        """These are seconds of another clock."""

    def measured(self, first: int, last: int) -> Measured:
        """Figures of the rounds after `first`, up to `last`."""
        marks = zip(self._marks[first], self._marks[last], strict=True)
        (wall,), *spent = [[after - before for before, after in zip(*pair, strict=True)] for pair in marks]
        found = Measured(step=wall / (last - first), rounds=last - first)
        for (role, crew), (busy, tokens, searches, slots) in zip(self._players.items(), spent, strict=False):
            pace = crew.engines[0].decoding.pace
            found.idle[role] = 1 - busy / wall / crew.size
            found.bubble[role] = 1 - tokens * pace.full / wall / crew.size
            found.fill[role] = slots / max(busy, 1e-9) / pace.sequences
            found.generated[role] = tokens
            found.tokens += tokens / wall
            found.searches += searches / wall
        for name, (busy, trained) in zip(self._taught, spent[len(self._players) :], strict=True):
            found.idle[f"learner-{name}"] = found.bubble[f"learner-{name}"] = 1 - busy / wall
            found.trained[name] = int(trained)
        middle = [(role, values) for step, role, values in self._rows if first < step <= last]
        found.games = int(sum(values["game/played"] for role, values in middle if role == "game"))
        for role in self._players:
            mean = [values["staleness/mean"] for name, values in middle if name == role]
            most = [values["staleness/max"] for _, name, values in self._rows if name == role]
            found.staleness[role] = (sum(mean) / len(mean), max(most))
        return found
