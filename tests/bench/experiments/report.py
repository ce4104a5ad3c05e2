"""The page of an experiment, from its rows: tables, paired differences with intervals, curves.

    python tests/bench/experiments/report.py [coevolution ...] [--print]

Writes `docs/experiments/NAME.md` and `NAME.svg` (default: of every experiment that has runs), and the index `README.md`.
Differences are arm minus control, paired by cold start and seed. The
interval is a hierarchical percentile bootstrap (10,000 draws): cold starts are drawn with replacement, then seeds within
each, so runs of one cold start do not count as independent worlds. Equal compute: both curves are read, between their
evaluations, at the CPU seconds of the cheaper run of the pair, from the start's evaluation on; only runs in one process have these.
Equal tokens: the same by the tokens that were sampled, where the rows of an experiment have them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from run import HERE, RESULTS, experiment, rows  # noqa: E402

Row = Mapping[str, Any]
COLUMNS = ("start", "end", "hop1", "hop2", "hop3", "train", "junk")
INK = (
    *("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf"),
    *("#e377c2", "#7f7f7f", "#bcbd22", "#1b4f72", "#7b241c"),
)
DRAWS = 10_000


def interval(pairs: Mapping[int, list[float]], seed: int = 0) -> tuple[float, float, float]:
    """Mean and 95 % interval of differences by cold start."""
    draw, colds = np.random.default_rng(seed), [np.array(found) for found in pairs.values()]
    means = np.empty(DRAWS)
    for i in range(DRAWS):
        chosen = [colds[k] for k in draw.integers(len(colds), size=len(colds))]
        means[i] = np.concatenate([found[draw.integers(len(found), size=len(found))] for found in chosen]).mean()
    low, high = np.quantile(means, [0.025, 0.975])
    return float(np.concatenate(colds).mean()), float(low), float(high)


def paired(found: list[Row], arm: str, control: str, of: Callable[[Row, Row], float | None]) -> dict[int, list[float]]:
    """Differences by cold start, of the pairs that started alike and for which `of(row, its control)` has one."""
    controls = {row["seed"]: row for row in found if row["arm"] == control}
    pairs: dict[int, list[float]] = {}
    for row in found:
        if row["arm"] == arm and row["start"] == controls.get(row["seed"], {}).get("start"):
            difference = of(row, controls[row["seed"]])
            if difference is not None:
                pairs.setdefault(row["cold"], []).append(difference)
    return pairs


def at_end(name: str) -> Callable[[Row, Row], float | None]:
    """Difference of a figure of the final evaluation. None where a run has none."""
    return lambda row, other: None if row[name] is None or other[name] is None else row[name] - other[name]


def at_equal_compute(name: str, by: str = "cpu") -> Callable[[Row, Row], float | None]:
    """Difference of a curve at the CPU seconds, or what else rows count by step, of the cheaper run."""

    def of(row: Row, other: Row) -> float | None:
        if not row.get(by) or not other.get(by):
            return None
        both = [{step: one[by][step] for step in one[name] if step in one[by]} for one in (row, other)]
        budget = min(max(spent.values()) for spent in both)
        here, there = (
            float(np.interp(budget, list(spent.values()), [one[name][step] for step in spent]))
            for spent, one in zip(both, (row, other), strict=True)
        )
        return here - there

    return of


COMPARED = {
    "mean of 1-3 hops": at_end("end"),
    "2 hops": at_end("hop2"),
    "3 hops": at_end("hop3"),
    "mean, equal compute": at_equal_compute("curve"),
    "3 hops, equal compute": at_equal_compute("curve3"),
}
TOKENS = {
    "mean, equal tokens": at_equal_compute("curve", "tokens"),
    "3 hops, equal tokens": at_equal_compute("curve3", "tokens"),
}


def tables(about: Mapping[str, Any], found: list[Row]) -> list[str]:
    """Markdown lines: a row an arm, and the paired differences."""
    columns = [*COLUMNS, *about.get("shown", [])]
    said = ["| arm | runs | " + " | ".join(columns) + " | CPU s |", "|---" * (len(columns) + 3) + "|"]
    played = [arm for arm in about["arms"] if any(row["arm"] == arm for row in found)]
    for arm in played:
        mine = [row for row in found if row["arm"] == arm]
        cells = [_cell([row[name] for row in mine if row.get(name) is not None]) for name in columns]
        spent = [max(row["cpu"].values()) for row in mine if row["cpu"]]
        said.append(f"| {arm} | {len(mine)} | " + " | ".join(cells) + f" | {np.mean(spent) if spent else 0:.0f} |")
    said += ["", f"Arm minus `{about['control']}`, mean and 95 % interval over pairs (from three cold starts on):", ""]
    compared = COMPARED | (TOKENS if all(row.get("tokens") for row in found) else {})
    said += ["| arm | pairs | " + " | ".join(compared) + " |", "|---" * (len(compared) + 2) + "|"]
    for arm in played:
        if arm == about["control"]:
            continue
        cells, count = [], 0
        for of in compared.values():
            pairs = paired(found, arm, about["control"], of)
            count = max(count, sum(map(len, pairs.values())))
            cells.append(_difference(pairs))
        said.append(f"| {arm} | {count} | " + " | ".join(cells) + " |")
    if missing := [f"`{arm}`" for arm in about["arms"] if arm not in played]:
        said += ["", f"Not played yet: {', '.join(missing)}."]
    return said


def _difference(pairs: dict[int, list[float]]) -> str:
    """Without an interval where there are too few cold starts to draw from."""
    if not pairs:
        return "-"
    mean, low, high = interval(pairs)
    return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]" if len(pairs) > 2 else f"{mean:+.3f}"


def _cell(values: list[float]) -> str:
    if not values:
        return "-"
    low, high = min(values), max(values)
    return f"{np.mean(values):.3f} ({low:.3f} to {high:.3f})" if high > low else f"{low:.3f}"


def plot(about: Mapping[str, Any], found: list[Row], name: str = "curve") -> str:
    """An SVG of held-out accuracy by step: the mean of each arm, its lowest and highest run shaded."""
    wide, high, left, low = 640, 360, 50, 320
    last = max(int(step) for row in found for step in row[name])

    def place(step: int, value: float) -> str:
        return f"{left + (wide - left - 140) * step / last:.1f},{low - (low - 20) * value:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif" font-size="12">'
    ]
    parts.append(f'<rect width="{wide}" height="{high}" fill="white"/>')
    for tenth in range(0, 11, 2):
        y = low - (low - 20) * tenth / 10
        parts.append(
            f'<path d="M{left} {y:.1f}H{wide - 140}" stroke="#ddd"/><text x="18" y="{y + 4:.1f}">{tenth / 10:.1f}</text>'
        )
    parts.append(
        f'<text x="{left}" y="{high - 12}">held-out accuracy by step, 0 to {last}; shaded: lowest to highest run</text>'
    )
    for arm, ink, line in zip(about["arms"], INK, range(len(INK)), strict=False):
        curves = [row[name] for row in found if row["arm"] == arm]
        steps = sorted({int(step) for curve in curves for step in curve})
        each = {step: [curve[str(step)] for curve in curves if str(step) in curve] for step in steps}
        if not each:
            continue
        band = [place(step, max(seen)) for step, seen in each.items()] + [
            place(s, min(each[s])) for s in reversed(steps)
        ]
        mean = " ".join(place(step, float(np.mean(seen))) for step, seen in each.items())
        parts.append(f'<polygon points="{" ".join(band)}" fill="{ink}" opacity="0.12"/>')
        parts.append(f'<polyline points="{mean}" fill="none" stroke="{ink}" stroke-width="2"/>')
        parts.append(f'<text x="{wide - 130}" y="{30 + 18 * line}" fill="{ink}">{arm} ({len(curves)})</text>')
    return "\n".join([*parts, "</svg>", ""])


def page(name: str) -> str:
    """The whole page."""
    about, found = experiment(name), rows(name)
    ended = [row for row in found if row["exit"] != 0]
    said = [f"# {about['title']}", "", *about["about"].strip().splitlines(), ""]
    said += ["```bash", f"python tests/bench/experiments/run.py {name} --out runs/experiments --jobs 2", "```", ""]
    said += [
        f"{about['seeds']} seeds over {about['coldstarts']} cold starts are asked for; this page has {len(found)} runs."
    ]
    asked = "of a world that training never searches, sampled at temperature 1"
    asked = asked if about["config"] == "quickstart" else "that training never asks, greedy"
    said += [f"Accuracy on {about['per_hop']} questions a hop {asked}; mean"]
    said += [
        "(lowest-highest run). `junk`: accepted questions whose true answer is not the target, by the world's oracle.",
        "",
    ]
    said += [*tables(about, found), ""]
    said += ["**Finding.** " + about["finding"].strip(), ""] if "finding" in about else []
    said += [f"`{row['arm']}`, seed {row['seed']}: ended by an alarm after step {row['steps']}." for row in ended]
    return "\n".join([*said, "", f"![curves]({name}.svg)", ""])


def index() -> str:
    """The table of all experiments: what is asked, what was run, what was found."""
    said = ["# The experiments", "", *INTRODUCTION.strip().splitlines(), ""]
    said += ["| experiment | question | arms | runs | finding |", "|---|---|---|---|---|"]
    for file in sorted(HERE.glob("*.yaml")):
        name, about = file.stem, experiment(file.stem)
        have = sum(row["arm"] in about["arms"] for row in rows(name))
        wanted = len(about["arms"]) * about["seeds"]
        arms = ", ".join(f"`{arm}`" for arm in about["arms"])
        shown = f"[{name}]({name}.md)" if have else name
        finding = " ".join(about.get("finding", "not run yet").split())
        said.append(f"| {shown} | {about['title']} | {arms} | {have} of {wanted} | {finding} |")
    return "\n".join([*said, ""])


INTRODUCTION = """
Each is a file of arms in `tests/bench/experiments/`; a runner plays what is missing, on two CPU cores a run takes two to
four minutes, and a page is made of the rows (`NAME.jsonl`). All arms of a seed start from the same cold start and differ by
what the arm names. Intervals are 95 %, bootstrapped over cold starts, then seeds within them; few cold starts give wide
ones, and below three none is given. But for `english` (half an hour to an hour a run) the world
is small (390 entities, questions of one to three hops, a policy of 134 k weights): these pages say whether a mechanism does
here what the paper says it does there, and are no evidence about large models.
[Measured](measured.md) has figures that are no experiment, [speed](speed.md) those of time, memory and growth.

The runs in real English that are no experiment of arms have a log: [runs in the English world](english-runs.md).

```bash
python tests/bench/experiments/run.py NAME --out runs/experiments --jobs 2   # plays the runs that have no row yet
python tests/bench/experiments/report.py NAME
```
"""


def main() -> int:
    """Write the pages and the index, or print the pages."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--print", action="store_true")
    given = parser.parse_args()
    for name in given.names or [file.stem for file in sorted(HERE.glob("*.yaml")) if rows(file.stem)]:
        if given.print:
            print(page(name))
            continue
        (RESULTS / f"{name}.md").write_text(page(name), encoding="utf-8")
        (RESULTS / f"{name}.svg").write_text(plot(experiment(name), rows(name)), encoding="utf-8")
    if not given.print:
        (RESULTS / "README.md").write_text(index(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
