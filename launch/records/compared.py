"""Runs beside each other: as plain data (`ssp compare --json`), and as tables of the same.

Owns names, number formats and sentences. Promises that what is shown is what --json says. Refuses to compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ssp.game.evaluation.summary import DRAWS, Estimate
from ssp.views.compare.pairs import Pair, Versus, repeated
from ssp.views.compare.runs import Kept, Point, Run, differing

HIDDEN = ("run", "resume", "ray", "telemetry")
"""Settings of where a run is and who watches it."""

MOST = 20
"""Settings shown; --json has all."""

Data = dict[str, Any]


def figures(runs: Sequence[Run], versus: Sequence[Versus]) -> Data:
    """Everything that is known, as numbers, texts and lists."""
    return {
        "metric": runs[0].metric,
        "runs": [_run(run) for run in runs],
        "settings": differing(runs, HIDDEN),
        "differences": [
            {"pairs": [_pair(pair) for pair in one.pairs], "mean": _interval(one.estimate)} for one in versus
        ],
        "left_out": [{"name": run.name, "same_as": one.name} for run, one in repeated(runs)],
    }


def _run(run: Run) -> Data:
    best = run.best
    nearest = run.nearest(best.step)
    return {
        "name": run.name,
        "folder": str(run.folder.path),
        "steps": run.steps,
        "ended": run.ended,
        "seconds": run.seconds,
        "cpu": run.cpu,
        "voids": run.voids,
        "evaluations": len(run.values),
        "start": _point(run.start),
        "end": _point(run.end),
        "best": _point(best),
        "checkpoint": None if nearest is None else _kept(nearest, best),
    }


def _point(point: Point) -> Data:
    return {"step": point.step, "value": point.value, "interval": _interval(point.estimate)}


def _interval(estimate: Estimate | None) -> Data | None:
    return None if estimate is None else {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}


def _kept(kept: Kept, best: Point) -> Data:
    return {
        "step": kept.step,
        "version": kept.version,
        "folder": str(kept.folder),
        "is_best": kept.step == best.step,
    }


def _pair(pair: Pair) -> Data:
    names = {"ours": pair.ours.name, "theirs": pair.theirs.name}
    ends = [pair.ours.end.step, pair.theirs.end.step]
    return {**names, "ends": ends, "questions": pair.questions, "difference": _interval(pair.estimate)}


def show(console: Console, found: Data) -> None:
    """The table of runs, what differs, the pairs, and each run's best checkpoint."""
    console.print(Text(f"{found['metric']}, with 95 % intervals ({DRAWS} bootstrap draws of questions)", style="bold"))
    console.print(_table(found["runs"]))
    _settings(console, found)
    pairs(console, found)
    for run in found["runs"]:
        console.print(_best(run))


def pairs(console: Console, found: Data) -> None:
    """The difference of each pair, the mean of several, and which runs are in none."""
    for versus in found["differences"]:
        for pair in versus["pairs"]:
            said = f"{pair['ours']} - {pair['theirs']} (same seed, same start): {_difference(pair['difference'])}"
            ours, theirs = pair["ends"]
            steps = f"after step {ours}" if ours == theirs else f"after unequal steps, {ours} and {theirs}"
            console.print(Text(f"{said} over {pair['questions']:,} questions that both answered {steps}"))
        if versus["mean"] is not None:
            known = sum(pair["difference"] is not None for pair in versus["pairs"])
            said = f"{known} pairs: {_difference(versus['mean'])} on average, pairs drawn anew"
            console.print(Text(said, style="bold"))
    if len(found["runs"]) > 1 and not found["differences"]:
        console.print("no pairs: no two of these runs differ in a setting at the same seed and start")
    for left in found["left_out"]:
        why = f"has the settings, the seed and the start of {left['same_as']}, which counts already"
        console.print(Text(f"{left['name']} is in no pair: it {why}", style="yellow"))


def _table(runs: Sequence[Data]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    counted = ["CPU s"] if any(run["cpu"] is not None for run in runs) else []
    for heading in ("run", "steps", "start", "end", "best", "seconds", *counted, "voids", "ended"):
        justify: Literal["left", "right"] = "left" if heading in ("run", "ended") else "right"
        table.add_column(heading, justify=justify, no_wrap=heading != "run", overflow="fold")
    for run in runs:
        cost = [f"{run['seconds']:,.0f}", f"{sum(run['voids'].values()):,}"]
        cost[1:1] = ["-" if run["cpu"] is None else f"{run['cpu']:,.0f}"] * len(counted)
        values = [_value(run[name]) for name in ("start", "end", "best")]
        table.add_row(*map(Text, (run["name"], str(run["steps"]), *values, *cost, run["ended"])))
    return table


def _value(point: Data) -> str:
    interval = point["interval"]
    span = "" if interval is None else f"\n{interval['low']:.2f}-{interval['high']:.2f}"
    return f"{point['value']:.3f}{span}"


def _difference(interval: Data | None) -> str:
    if interval is None:
        return "no interval (no question in common, or no accuracy)"
    return f"{interval['mean']:+.3f} [{interval['low']:+.3f}, {interval['high']:+.3f}]"


def _settings(console: Console, found: Data) -> None:
    """Each setting that differs, and which runs have which value."""
    names = [run["name"] for run in found["runs"]]
    for key, values in list(found["settings"].items())[:MOST]:
        groups: dict[str, list[str]] = {}
        for name, value in zip(names, values, strict=True):
            groups.setdefault(repr(value), []).append(name)
        console.print(Text(f"{key}: " + ", ".join(f"{value} ({' '.join(who)})" for value, who in groups.items())))
    if len(found["settings"]) > MOST:
        console.print(f"{len(found['settings']) - MOST} more settings differ: --json has all")


def _best(run: Data) -> Text:
    """Where the best value's weights are, else where the nearest ones are."""
    best, kept = run["best"], run["checkpoint"]
    said = Text(f"{run['name']}: ", style="bold").append(
        f"best of {run['evaluations']} evaluations {best['value']:.3f} at step {best['step']}; ", style="none"
    )
    if best["step"] == 0:
        return said.append("that is what it started from", style="none")
    if kept is None:
        return said.append("no checkpoint of the solver is left", style="yellow")
    where = f"v{kept['version']}, {kept['folder']}"
    if kept["is_best"]:
        return said.append(f"its checkpoint is {where}", style="none")
    return said.append(
        f"its checkpoint is not there (save.every, save.keep); the nearest is step {kept['step']}: {where}",
        style="none",
    )
