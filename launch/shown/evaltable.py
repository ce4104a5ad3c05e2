"""The tables of `ssp eval`, on the console and as JSON. Equal scores give equal bytes: no times, no
paths."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ssp.base.files import whole
from ssp.base.intervals import Estimate
from ssp.game import evaluation
from ssp.game.evaluation import COUNTS, ScoredRow, TableLine
from ssp.telemetry.terminal import table

SCORES = {"em": "EM", "sub_em": "subEM", "f1": "F1", "judge": "judge", "score": "score"}
WORK = {"recall": "recall@{k}", "searches": "searches", "turns": "turns", "words": "words"}


def show(
    console: Console,
    sets: Mapping[str, Sequence[TableLine]],
    averaged: Mapping[str, TableLine],
    rows: Mapping[str, Sequence[ScoredRow]],
    topk: int,
) -> None:
    """Print one line a set (after one a hop count), the macro average where several sets are
    `averaged`, and what went wrong."""
    lines = _all(sets, averaged)
    counts = {"rows": [line.rows for line in lines], "void": [line.void for line in lines]}
    if any("judge" in line.estimates or line.failures for line in lines):
        counts["failures"] = [line.failures for line in lines]
    console.print(_table(lines, SCORES, counts))
    work = {name: heading.format(k=topk) for name, heading in WORK.items()}
    sampled = list(lines[-1].estimates)
    samples = [
        {name: name for name in sampled if name.startswith(kind)}
        for kind in ("pass@", "mean@", "maj@")
    ]
    for headings in (work, *samples):
        if any(name in line.estimates for line in lines for name in headings):
            console.print(_table(lines, headings, {}))
    console.print("in brackets the 95 % interval, over questions; a void is in no estimate")
    for name, played in rows.items():
        scored = [row.stopped for row in played if row.scored]
        _causes(console, f"{name}: episodes ended by", scored)
        _causes(console, f"{name}: void", [row.cause for row in played])
        _causes(console, f"{name}: judge failures", [row.judge_failure for row in played])


def _table(
    lines: Sequence[TableLine], headings: Mapping[str, str], counts: Mapping[str, Sequence[int]]
) -> Table:
    """A row a line: its counts, then those of the metrics that any line has."""
    names = [name for name in headings if any(name in line.estimates for line in lines)]
    rows = []
    for at, line in enumerate(lines):
        numbers = [str(column[at]) for column in counts.values()]
        cells = [_cell(name, line.estimates.get(name)) for name in names]
        rows.append([line.label, *numbers, *cells])
    return table(("set", *counts, *(headings[name] for name in names)), rows)


def write(
    path: Path, sets: Mapping[str, Sequence[TableLine]], averaged: Mapping[str, TableLine]
) -> None:
    """Write the table as JSON: label → rows, void, failures, and per metric mean, low, high."""
    told: dict[str, dict[str, object]] = {}
    for line in _all(sets, averaged):
        counts = {"rows": line.rows, "void": line.void, "failures": line.failures}
        metrics = {name: estimate._asdict() for name, estimate in line.estimates.items()}
        told[line.label] = {**counts, **metrics}
    with whole(path) as aside:
        aside.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _all(
    sets: Mapping[str, Sequence[TableLine]], averaged: Mapping[str, TableLine]
) -> list[TableLine]:
    lines = [line for of_set in sets.values() for line in of_set]
    return [*lines, evaluation.macro(averaged)] if len(averaged) > 1 else lines


def _causes(console: Console, what: str, causes: Sequence[str]) -> None:
    """Print how often each cause came, where any did."""
    counts = sorted(Counter(filter(None, causes)).items())
    if counts:
        console.print(f"{what}: " + ", ".join(f"{cause} {number}" for cause, number in counts))


def _cell(name: str, estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    if name in COUNTS:
        return f"{estimate.mean:.2f}"
    mean, low, high = (100 * value for value in estimate)
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]"
