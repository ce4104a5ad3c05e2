"""The tables of `ssp eval`, on the console and as JSON. Equal scores give equal bytes: no times, no
paths."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

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
    """Print one line a set (after one a hop count), the macro average of those that are `averaged`,
    where they are several, and what went wrong."""
    shown = _all(sets, averaged)
    counts = {"rows": [line.rows for line in shown], "void": [line.void for line in shown]}
    if any("judge" in line.estimates or line.failures for line in shown):
        counts["failures"] = [line.failures for line in shown]
    kinds = ("pass@", "mean@", "maj@")
    samples = [
        {name: name for name in shown[-1].estimates if name.startswith(kind)} for kind in kinds
    ]
    for headings in (SCORES, WORK, *samples):
        names = [name for name in headings if any(name in line.estimates for line in shown)]
        before = counts if headings is SCORES else {}
        columns = [
            [line.label for line in shown],
            *(list(map(str, numbers)) for numbers in before.values()),
        ]
        columns += [[_cell(name, line.estimates.get(name)) for line in shown] for name in names]
        if names or before:
            said = [headings[name].format(k=topk) for name in names]
            console.print(table(("set", *before, *said), list(zip(*columns, strict=True))))
    console.print("in brackets the 95 % interval, over questions; a void is in no estimate")
    for name, found in rows.items():
        _causes(console, f"{name}: episodes ended by", [row.stopped for row in found if row.scored])
        _causes(console, f"{name}: void", [row.cause for row in found])
        _causes(console, f"{name}: judge failures", [row.judge_failure for row in found])


def write(
    path: Path, sets: Mapping[str, Sequence[TableLine]], averaged: Mapping[str, TableLine]
) -> None:
    """The table as JSON: label → rows, void, failures, and for each metric mean, low, high."""
    found = dict[str, dict[str, object]]()
    for line in _all(sets, averaged):
        metrics = {
            name: {"mean": e.mean, "low": e.low, "high": e.high}
            for name, e in line.estimates.items()
        }
        found[line.label] = {
            "rows": line.rows,
            "void": line.void,
            "failures": line.failures,
            **metrics,
        }
    with whole(path) as aside:
        aside.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _all(
    sets: Mapping[str, Sequence[TableLine]], averaged: Mapping[str, TableLine]
) -> list[TableLine]:
    shown = [line for lines in sets.values() for line in lines]
    return [*shown, evaluation.macro(averaged)] if len(averaged) > 1 else shown


def _causes(console: Console, what: str, causes: Sequence[str]) -> None:
    if counted := Counter(filter(None, causes)):
        console.print(
            f"{what}: " + ", ".join(f"{cause} {n}" for cause, n in sorted(counted.items()))
        )


def _cell(name: str, estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    if name in COUNTS:
        return f"{estimate.mean:.2f}"
    mean, low, high = (100 * value for value in estimate)
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]"
