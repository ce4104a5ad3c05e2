"""Summaries of rows: the periodic evaluation's figures, and the table's estimates with their
intervals. The unit of every interval is the question."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ssp.base.intervals import Estimate, of_numbers, of_shares, together
from ssp.base.text import normalise
from ssp.game.evaluation.rows import ScoredRow
from ssp.game.judge import same

METRICS = ("em", "sub_em", "f1", "judge", "score", "recall", "searches", "turns", "words")
"""What a row tells, by field."""
COUNTS = ("searches", "turns", "words")
"""Of these what is a number and no share."""


@dataclass(frozen=True)
class Answered:
    """What a periodic summary needs of a row; `correct` is None when the episode is void."""

    hops: int
    correct: bool | None
    searches: int


def summarise(rows: Sequence[Answered]) -> dict[str, float]:
    """Figures of the scored rows, as shares in [0, 1]; `void` counts the rows left out. `accuracy`,
    `stderr` and `items`, each also as `<name>_<k>hop`; `accuracy_mean123`: mean of 1, 2 and 3 hops,
    when all three are there; `searches`: mean a question. Without a scored row an estimate is
    absent."""
    scored = [row for row in rows if row.correct is not None]
    summary = {"items": float(len(scored)), "void": float(len(rows) - len(scored))}
    if not scored:
        return summary
    summary["searches"] = sum(row.searches for row in scored) / len(scored)
    for hops in (None, *sorted({row.hops for row in scored} - {0})):
        right, suffix = (
            [bool(r.correct) for r in scored if hops in (None, r.hops)],
            f"_{hops}hop" if hops else "",
        )
        p, n = sum(right) / len(right), len(right)
        figures = {"accuracy": p, "stderr": math.sqrt(p * (1 - p) / n), "items": float(n)}
        summary |= {name + suffix: value for name, value in figures.items()}
    first = [f"accuracy_{hops}hop" for hops in (1, 2, 3)]
    if all(name in summary for name in first):
        summary["accuracy_mean123"] = sum(summary[name] for name in first) / 3
    return summary


def metrics(summary: dict[str, float], set_name: str = "") -> dict[str, float]:
    """The summary under its documented names: `eval/accuracy` ..., or `eval/<set_name>/accuracy`
    ... when one is given."""
    prefix = f"eval/{set_name}/" if set_name else "eval/"
    return {prefix + name: value for name, value in summary.items()}


@dataclass(frozen=True)
class TableLine:
    """One line of the table: a set, its questions of one hop count, or the macro average over sets.
    `rows` counts samples, `void` and `failures` those that a fault or the judge left without a
    score; `estimates` by metric name."""

    label: str
    rows: int
    void: int
    failures: int
    estimates: dict[str, Estimate]


def lines(name: str, rows: Sequence[ScoredRow], ks: Sequence[int] = ()) -> list[TableLine]:
    """The set's line, after one for each hop count when the questions state theirs. `ks`: the k of
    pass@k."""
    hops = sorted({row.hops for row in rows} - {0})
    parts = (
        [(f"{name} {hop}hop", [row for row in rows if row.hops == hop]) for hop in hops]
        if len(hops) > 1
        else []
    )
    return [_line(label, part, ks) for label, part in [*parts, (name, list(rows))]]


def _line(label: str, rows: list[ScoredRow], ks: Sequence[int]) -> TableLine:
    questions: dict[str, list[ScoredRow]] = {}
    for row in rows:
        questions.setdefault(row.id, []).append(row)
    values: dict[str, list[float]] = {}
    for samples in questions.values():
        for metric, value in question_values([row for row in samples if row.scored], ks).items():
            values.setdefault(metric, []).append(value)
    void, failures = (
        sum(not row.scored for row in rows),
        sum(bool(row.judge_failure) for row in rows),
    )
    estimates = {
        name: (of_numbers if name in COUNTS else of_shares)(of) for name, of in values.items()
    }
    return TableLine(label, len(rows), void, failures, estimates)


def pass_at(n: int, correct: int, k: int) -> float:
    """Chance that at least one of k samples, drawn from n of which `correct` are right, is right: 1
    - C(n-c,k)/C(n,k)."""
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


def majority(answers: Sequence[str | None]) -> str | None:
    """The most frequent answer after normalisation, as it was first written; of several the first
    seen. None: no vote."""
    said = [answer for answer in answers if answer is not None]
    most = Counter(map(normalise, said)).most_common(1)
    return next((answer for answer in said if normalise(answer) == most[0][0]), None)


def question_values(samples: Sequence[ScoredRow], ks: Sequence[int] = ()) -> dict[str, float]:
    """What one question adds to each metric, by its scored samples; a metric that it cannot tell is
    absent. `pass@k` (see `pass_at`, over all samples), `mean@k` and `maj@k` (over the first k), by
    EM, with k samples."""
    if not samples:
        return {}
    fields = {name: [getattr(row, name) for row in samples] for name in METRICS}
    known = {
        name: [float(value) for value in found if value is not None]
        for name, found in fields.items()
    }
    values = {name: sum(found) / len(found) for name, found in known.items() if found}
    right = known["em"]
    for k in ks:
        if k <= len(right):
            vote = majority([row.prediction for row in samples[:k]])
            values[f"pass@{k}"] = pass_at(len(right), int(sum(right)), k)
            values[f"mean@{k}"] = sum(right[:k]) / k
            values[f"maj@{k}"] = float(same(vote or "", samples[0].golden_answers))
    return values


def macro(sets: Mapping[str, TableLine]) -> TableLine:
    """The unweighted mean over sets, of every metric that all of them have."""
    found = list(sets.values())
    shared = [name for name in found[0].estimates if all(name in line.estimates for line in found)]
    means = {name: together([line.estimates[name] for line in found]) for name in shared}
    rows, void, failures = (
        sum(getattr(line, name) for line in found) for name in ("rows", "void", "failures")
    )
    return TableLine("macro average", rows, void, failures, means)
