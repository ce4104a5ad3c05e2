"""`ssp bank RUN --curriculum` and `--yardstick K`: what a run's questions were like, from its files.

Owns the tables. Promises the figures that the run logged. Refuses to compute: that is `ssp.selfplay.curriculum`'s.
"""

from __future__ import annotations

from argparse import Namespace

from rich.console import Console
from rich.table import Table

from launch import policy
from launch.questions.regrade import played_in
from ssp.base.episode import SOLVER
from ssp.capacity.memory import threads
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.selfplay.curriculum import figures, yardstick
from ssp.selfplay.curriculum.yardstick import Gap
from ssp.selfplay.workers import build

SHOWN = {
    "learnability": "learn.",
    "solved_0": "none",
    "solved_100": "all",
    "searches": "search",
    "near_duplicates": "near",
}
"""Figure → heading; a row fits into 80 columns."""


def show(console: Console, run: RunFolder, limit: int) -> int:
    """The newest `limit` rounds, and all alarms."""
    found = list(figures.again(run))
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for heading in ("round", *SHOWN.values()):
        table.add_column(heading, justify="right")
    for step, values, _ in found[max(len(found) - limit, 0) :]:
        known = [values.get(f"curriculum/{name}") for name in SHOWN]
        table.add_row(str(step), *("-" if value is None else f"{value:.2f}" for value in known))
    console.print(table)
    for text in filter(None, (said for _, _, said in found)):
        console.print(text, style="yellow")
    return 0


def measure(console: Console, args: Namespace, run: RunFolder) -> int:
    """Ask the yardstick, leave its file, show its table."""
    cfg = RunReader(run, args.trust_code).cfg
    if args.policy or args.model or args.tokenizer:
        named = policy.parse(args)
        cfg = played_in(named.config(None, []), cfg)
        folder = named.folder(cfg)
        shown = named.shown(folder)
    else:
        folder = build.model_dir(cfg, SOLVER)
        shown = str(folder)
    threads.use(threads.alone(cfg))
    found = yardstick.leave(run, yardstick.asker(cfg, folder), shown, args.yardstick, args.questions)
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for heading in ("round", "questions", "the run's solver", "yardstick"):
        table.add_column(heading, justify="right")
    for one in found:
        table.add_row(str(one.step), str(one.questions), _shown(one.own), _shown(one.yardstick))
    console.print(f"yardstick: {shown}")
    console.print(table)
    change = yardstick.drift(found)
    if change is None:
        console.print("too few rounds for a change: a smaller --yardstick, or a longer run")
    else:
        console.print(
            f"questions became harder by {_shown(change.harder)}, the solver better by {_shown(change.better)}"
        )
        console.print("(second half of these rounds against the first)")
    console.print(f"{run.path / yardstick.FILE}: shown by ssp board")
    return 0


def _shown(gap: Gap) -> str:
    return f"{gap.mean:.2f} ({gap.low:.2f} to {gap.high:.2f})"
