"""How cost grows with the work: measured points, a fitted line with its residual, and what it says of sizes that do not fit.

    python tests/bench/growth.py games                                  # 10 to 10,000 games in flight; 1 minute
    python tests/bench/growth.py steps --points 100000                  # a long run; 13 minutes
    python tests/bench/growth.py ledger --points 100000 1000000         # 3 minutes (10000000: 25)
    python tests/bench/growth.py corpus --points 100000 400000          # 3 minutes (5000000: 20)

`games`, `steps`: the real coordinator and the real ledger in simulated time, with players, judges and learners that make
their answers up (configs/simulated.yaml). CPU of a game is the coordinator's, the ledger's and that of making answers up,
which on a cluster is other processes'. `lag`: real milliseconds for which the event loop looks at nothing else, without
the ledger's. Ray's own share of a coordinator's CPU is in tests/bench/control_plane.py, under `driver`.

`ledger`: a run folder of so many episodes, in rounds of 1,000: the first and the last 100 through the ledger's own calls,
those between as copies with other ids; then each reader in a process of its own: seconds, CPU seconds, and its most MB.

`corpus`: BM25 over made-up passages of 100 words, and vectors in Flat, IVF and PQ.

Each point is a process of its own. A line is fitted through the points where there are two or more; its residual is the
largest distance of a point from it, as a share of the point.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from actors.process import started  # noqa: E402
from ssp.base.crew import CrewCall, LocalCrew  # noqa: E402
from ssp.base.episode import Task  # noqa: E402
from ssp.base.played import Brief  # noqa: E402
from ssp.base.seeds import generator  # noqa: E402
from ssp.capacity.plan import jumping, simulate  # noqa: E402
from ssp.capacity.plan.costs import Costs  # noqa: E402
from ssp.config.crews import learners  # noqa: E402
from ssp.config.schema import Config  # noqa: E402
from ssp.record.ledger import HomeLedger  # noqa: E402
from ssp.record.ledger.writer import LedgerWriter  # noqa: E402
from ssp.record.runfolder import RunFolder  # noqa: E402
from ssp.selfplay.coordinator import SelfPlay  # noqa: E402
from ssp.selfplay.crews.cast import Cast  # noqa: E402
from ssp.selfplay.crews.seams import Judges, Learners, Players  # noqa: E402
from ssp.selfplay.crews.watched import watched  # noqa: E402
from ssp.selfplay.evaluator import Evaluator  # noqa: E402
from ssp.selfplay.records import PlayOrder, PlayReport  # noqa: E402
from ssp.selfplay.report import Report  # noqa: E402
from ssp.selfplay.settings import load  # noqa: E402
from ssp.selfplay.targets import TargetRow, Targets  # noqa: E402
from ssp.telemetry.console import Console  # noqa: E402
from ssp.telemetry.display import Display  # noqa: E402
from tests.bench import growth_corpus, growth_ledger  # noqa: E402

ATTEMPTS, SEQUENCES = 4, 256
"""Attempts a game, and episodes that an engine plays at once: so many engines there are as that takes."""

SPENT: Counter[str] = Counter()
"""CPU seconds so far of what is not the coordinator."""


class Lag(jumping._Jump):
    """Notes the coordinator's own CPU seconds in each turn of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self._spent = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        spent = time.thread_time() - SPENT.total()
        TURNS.append(spent - self._spent)
        self._spent = spent
        return super().select(timeout)


TURNS: list[float] = []


class MadePlayer(Players):
    """Plays a block in a time that is drawn, and makes its briefs up."""

    async def play(self, tasks: Sequence[Task], order: PlayOrder, version: int, parcel: Any) -> tuple[Any, PlayReport]:
        seconds = float(generator(tasks[0].seed, "seconds").lognormal(1.0, 0.5))
        await asyncio.sleep(seconds)
        began = time.thread_time()
        briefs = [_brief(task, order, row, version) for row, task in enumerate(tasks)]
        SPENT["made up"] += time.thread_time() - began
        return [brief.tokens for brief in briefs], PlayReport(briefs, {"busy": seconds})

    async def refresh(self, version: int, parcel: Any) -> dict[str, float]:
        return {}


def _brief(task: Task, order: PlayOrder, row: int, version: int) -> Brief:
    final = f"what is it of {task.id} ?"
    facts = {"final": final, "outcome": None, "cause": "", "stopped": "final", "searches": 1, "tokens": 200}
    facts |= {"length": 500, "prompt": 200, "observed": 100, "version_min": version, "version_max": version}
    return Brief(task.id, task.game, task.role, task.attempt, **facts, file=f"{order.stem}.parquet", row=row)


class TimedLedger(LocalCrew[LedgerWriter]):
    """The ledger in this process; its CPU is counted apart."""

    async def perform(self, worker: int, call: CrewCall, *args: Any) -> Any:
        began = time.thread_time()
        try:
            return getattr(self.workers[worker], call.name)(*args)
        finally:
            SPENT["ledger"] += time.thread_time() - began


class Rows:
    """Sink of a report; `mark` hears of each finished step."""

    def __init__(self, mark: Any, inner: Any = None) -> None:
        self._mark, self._inner = mark, inner

    def write(self, step: int, role: str, values: dict[str, float]) -> None:
        if self._inner is not None:
            self._inner.write(step, role, values)
        if role == "game":
            self._mark(step)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name) if self._inner is not None else lambda *given: None


def config(flight: int, steps: int, *typed: str) -> Config:
    """Two rounds are under way, with `flight` games together."""
    batch = max(1, flight // 2)
    usual = [f"proposer.batch={batch}", f"solver.batch={batch}", f"game.attempts={ATTEMPTS}", f"steps={steps}"]
    usual += ["schedule.preset=", "schedule.max_staleness.proposer=1", "schedule.max_staleness.solver=1"]
    usual += ["schedule.in_flight=true", f"save.every={steps + 1}"]
    return load("simulated", [*usual, *typed])


async def play(cfg: Config, folder: RunFolder, mark: Any, display: Display | None = None) -> None:
    """One run of the real coordinator over a made-up cast and the run folder's own ledger."""
    started()  # the collector comes as seldom as in the driver of a run
    batch = cfg.solver.batch
    engines = {"proposer": -(-batch // SEQUENCES), "solver": -(-batch * ATTEMPTS // SEQUENCES)}
    costs = Costs(search_s=0.0, judge_s=0.1)
    taught = {}
    for name, roles in learners(cfg).items():
        learner: Any = simulate._Learner(1e-5)  # type: ignore[abstract]
        taught |= dict.fromkeys(roles, LocalCrew(Learners, f"learner-{name}", [learner].__getitem__))
    calls = iter(range(1, sys.maxsize))
    judge: Any = lambda i: simulate._Judge(0.1, costs, ATTEMPTS, calls)  # noqa: E731
    cast = Cast(
        players={role: LocalCrew(Players, role, lambda i: MadePlayer(), engines[role]) for role in cfg.roles},
        judges=LocalCrew(Judges, "judge", judge, max(1, engines["solver"] // 4)),
        learners=taught,
        ledger=TimedLedger(LedgerWriter, "ledger", lambda i: HomeLedger(folder.ledger)),
    )
    report = Report(Rows(mark, display), None, 1, cfg.spec)  # type: ignore[arg-type]
    if display is not None:
        cast = watched(cast, display.activity, cfg)
    rows = [TargetRow(f"answer {i}", "", (), simulate.ROW) for i in range(1000)]
    targets = Targets(rows, batch, cfg.seed)
    await SelfPlay(cfg, cast, folder, targets, report, Evaluator(cfg, [])).run()


def place(folder: str) -> RunFolder:
    """A new run folder in a temporary one."""
    run = RunFolder(Path(folder) / "run")
    run.checkpoints.mkdir(parents=True)
    run.episodes.mkdir()
    return run


def megabytes() -> float:
    """What this process holds in memory now, in MB."""
    gc.collect()
    return psutil.Process().memory_info().rss / 1e6


def games(flight: int) -> dict[str, float]:
    """CPU, memory and lag with so many games in flight; the first and the last rounds do not count."""
    edge = 3
    rounds = max(4, 3000 // max(1, flight // 2))
    cfg = config(flight, 2 * edge + rounds)
    marks: dict[int, tuple[float, float, float, int, float]] = {}

    def mark(step: int) -> None:
        if step in (edge, edge + rounds):
            memory = psutil.Process().memory_info().rss / 1e6
            marks[step] = time.thread_time(), SPENT["ledger"], SPENT["made up"], len(TURNS), memory

    jumping._Jump = Lag  # type: ignore[misc]
    before = megabytes()
    with tempfile.TemporaryDirectory(prefix="growth-") as folder:
        jumping.run_jumping(play(cfg, place(folder), mark))
    first, last = marks[edge], marks[edge + rounds]
    played = rounds * cfg.solver.batch
    whole, ledger, made = (1e3 * (end - start) / played for start, end in zip(first[:3], last[:3], strict=True))
    turns = sorted(TURNS[first[3] : last[3]])
    return {
        "coordinator ms a game": whole - ledger - made,
        "ledger ms a game": ledger,
        "made up ms a game": made,
        "MB": max(first[4], last[4]) - before,
        "lag p99 ms": 1e3 * turns[int(0.99 * len(turns))],
        "lag most ms": 1e3 * turns[-1],
        "games": played,
    }


def steps(number: int) -> dict[str, float]:
    """Memory at 1, 10 and 100 % of a long run of small rounds with all that a run writes, and CPU of a step there."""
    cfg = config(4, number, "game.attempts=2", "save.every=200")
    at = {"1 %": max(3, number // 100), "10 %": number // 10, "100 %": number - 2}
    window = max(2, number // 100)
    figures: dict[str, float] = {}
    began: dict[str, tuple[float, float]] = {}

    def mark(step: int) -> None:
        for name, end in at.items():
            if step == max(1, end - window):
                began[name] = time.process_time(), SPENT["ledger"]
            if step == end:
                count = step - max(1, end - window)
                ledger = SPENT["ledger"] - began[name][1]
                spent = time.process_time() - began[name][0] - ledger
                figures[f"MB at {name}"] = megabytes()
                figures[f"ms a step at {name}"] = 1e3 * spent / count
                figures[f"ledger's at {name}"] = 1e3 * ledger / count
                print(f"step {step:,}: {figures[f'MB at {name}']:.0f} MB", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="growth-") as folder, open(os.devnull, "w") as nowhere:
        run = place(folder)
        display = Display(cfg, run, Console(nowhere))
        jumping.run_jumping(play(cfg, run, mark, display))
        display.close()
    return figures


def fitted(points: Sequence[int], values: Sequence[float]) -> tuple[float, float, float]:
    """Intercept, slope and residual of the line through the points that leaves the least relative error."""
    weights = [1.0 / max(abs(value), 1e-9) ** 2 for value in values]
    total = sum(weights)
    mean_x = sum(w * x for w, x in zip(weights, points, strict=True)) / total
    mean_y = sum(w * y for w, y in zip(weights, values, strict=True)) / total
    both = zip(weights, points, values, strict=True)
    shared = sum(w * (x - mean_x) * (y - mean_y) for w, x, y in both)
    slope = shared / max(sum(w * (x - mean_x) ** 2 for w, x in zip(weights, points, strict=True)), 1e-12)
    start = mean_y - slope * mean_x
    far = [abs(start + slope * x - y) / max(abs(y), 1e-9) for x, y in zip(points, values, strict=True)]
    return start, slope, max(far)


def table(points: Sequence[int], rows: Sequence[dict[str, float]], beyond: Sequence[int]) -> None:
    """Print a row a figure: its value at each point, the line, its residual, and what it says of the sizes beyond. Of what
    is a game's, the last point as a multiple of the first of at least 100."""
    heads = [*(f"{point:,}" for point in points), "a + b x", "residual", *(f"{point:,}?" for point in beyond)]
    print(f"{'':28}" + "".join(f"{head:>18}" for head in heads))
    for name in rows[0]:
        values = [row[name] for row in rows]
        cells = [f"{value:,.4g}" for value in values]
        if name.endswith("a game"):
            usual = min((point for point in points if point >= 100), default=points[-1])
            cells.append(f"x {values[-1] / values[points.index(usual)]:.2f}")
        elif len(points) > 1:
            start, slope, residual = fitted(points, values)
            cells += [f"{start:.2g} + {slope:.2g} x", f"{residual:.0%}"]
            cells += [f"{start + slope * point:,.4g}" for point in beyond]
        print(f"{name:28}" + "".join(f"{cell:>18}" for cell in cells), flush=True)


def ceiling(rows: Sequence[dict[str, float]], recipe: str) -> None:
    """What one coordinator's games a second are in GPUs of a recipe, by `ssp plan`."""
    from ssp.capacity.plan.report import plan

    cfg = load(recipe, [])
    _, measured = plan(cfg, 64, Costs())
    each = measured.games / measured.rounds / measured.step / 64
    for name in ("coordinator ms a game", "ledger ms a game"):
        most = 1e3 / rows[-1][name]
        print(f"{name}: one core ends at {most:,.0f} games/s; {recipe} plays {each:.3g} a GPU: {most / each:,.0f} GPUs")


PARTS: dict[str, tuple[Any, list[int], list[int]]] = {
    "games": (games, [10, 100, 1_000, 10_000], []),
    "steps": (steps, [10_000], []),
    "ledger": (growth_ledger.measure, [100_000, 400_000], [10_000_000, 100_000_000]),
    "corpus": (growth_corpus.measure, [100_000, 400_000], [5_000_000, 21_000_000, 100_000_000]),
}
"""Part → what measures one point, the usual points, and sizes that are told from the line."""


def main() -> None:
    """Measure each point in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--points", type=int, nargs="+", help="sizes to measure")
    parser.add_argument("--recipe", default="search-r1-qwen2.5-7b-grpo", help="whose GPUs the ceiling is told in")
    parser.add_argument("--here", action="store_true", help="one point in this process")
    args = parser.parse_args()
    measure, usual, beyond = PARTS[args.part]
    points = args.points or usual
    if args.here:
        print("RESULT " + json.dumps(measure(points[0])), flush=True)
        return
    rows = []
    for point in points:
        command = [sys.executable, __file__, args.part, "--here", "--points", str(point)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=False)
        results = [json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith("RESULT {")]
        if not results:
            sys.exit(f"{' '.join(command)}: {done.returncode}\n{done.stdout[-2000:]}")
        rows.append(results[-1])
        print(f"{point:,}: load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    table(points, rows, beyond)
    if args.part == "games":
        ceiling(rows, args.recipe)


if __name__ == "__main__":
    main()
