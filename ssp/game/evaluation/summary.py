"""Summaries of rows: the figures of the periodic evaluation, and the estimates of the table with
their intervals. The unit of every interval is the question."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ssp.base.intervals import Estimate, of_numbers, of_shares, together
from ssp.base.text import normalise
from ssp.base.values import Values
from ssp.game.evaluation.rows import ScoredRow
from ssp.game.judge import same

METRICS = ("em", "sub_em", "f1", "judge", "score", "recall", "searches", "turns", "words")
"""The fields of a row that are averaged."""
COUNTS = ("searches", "turns", "words")
"""Those that are numbers; the others are shares."""


@dataclass(frozen=True)
class Answered:
    """What a periodic summary needs of a row; `correct` is None when the episode is void."""

    hops: int
    correct: bool | None
    searches: int
    category: str = ""


def summarise(rows: Sequence[Answered]) -> Values:
    """Figures of the scored rows, as shares in [0, 1]; `void` counts the rows left out.

    `accuracy`, `stderr` and `items`, each also as `<name>_<k>hop` and `<name>_by_<category>`.
    `accuracy_mean123`: the mean of 1, 2 and 3 hops, where all three occur. `searches`: the mean a
    question. Without a scored row there are no estimates."""
    scored = [row for row in rows if row.correct is not None]
    summary = {"items": float(len(scored)), "void": float(len(rows) - len(scored))}
    if not scored:
        return summary
    summary["searches"] = sum(row.searches for row in scored) / len(scored)
    summary |= _figures(scored, "")
    for hops in sorted({row.hops for row in scored} - {0}):
        part = [row for row in scored if row.hops == hops]
        summary |= _figures(part, f"_{hops}hop")
    for category in sorted({row.category for row in scored} - {""}):
        part = [row for row in scored if row.category == category]
        summary |= _figures(part, f"_by_{category}")
    names = [f"accuracy_{hops}hop" for hops in (1, 2, 3)]
    if all(name in summary for name in names):
        summary["accuracy_mean123"] = sum(summary[name] for name in names) / 3
    return summary


def _figures(scored: Sequence[Answered], suffix: str) -> Values:
    n = len(scored)
    p = sum(bool(row.correct) for row in scored) / n
    stderr = math.sqrt(p * (1 - p) / n)
    return {f"accuracy{suffix}": p, f"stderr{suffix}": stderr, f"items{suffix}": float(n)}


def metrics(summary: Values, set_name: str = "") -> Values:
    """The summary under its documented names: `eval/accuracy`, or `eval/<set_name>/accuracy` where
    a set is named."""
    prefix = f"eval/{set_name}/" if set_name else "eval/"
    return {prefix + name: value for name, value in summary.items()}


@dataclass(frozen=True)
class TableLine:
    """One line of the table: a set, its questions of one hop count, or the macro average over sets.

    `rows`: samples. `void`: those without scores, by a fault. `failures`: those without a verdict
    of the judge. `estimates`: by name of the metric."""

    label: str
    rows: int
    void: int
    failures: int
    estimates: dict[str, Estimate]


def lines(name: str, rows: Sequence[ScoredRow], ks: Sequence[int] = ()) -> list[TableLine]:
    """The line of a set; before it one for each hop count and each category, where the questions
    have several. `ks`: the k of pass@k."""
    hop_counts = sorted({row.hops for row in rows} - {0})
    table = []
    if len(hop_counts) > 1:
        for hops in hop_counts:
            part = [row for row in rows if row.hops == hops]
            table.append(_line(f"{name} {hops}hop", part, ks))
    categories = sorted({row.category for row in rows} - {""})
    for category in categories if len(categories) > 1 else ():
        part = [row for row in rows if row.category == category]
        table.append(_line(f"{name} {category}", part, ks))
    return [*table, _line(name, rows, ks)]


def _line(label: str, rows: Sequence[ScoredRow], ks: Sequence[int]) -> TableLine:
    questions: dict[str, list[ScoredRow]] = {}
    for row in rows:
        scored = questions.setdefault(row.id, [])
        if row.scored:
            scored.append(row)
    values: dict[str, list[float]] = {}
    for samples in questions.values():
        for metric, value in question_values(samples, ks).items():
            values.setdefault(metric, []).append(value)

    estimates = {}
    for metric, of_questions in values.items():
        estimate = of_numbers if metric in COUNTS else of_shares
        estimates[metric] = estimate(of_questions)
    void = sum(not row.scored for row in rows)
    failures = sum(bool(row.judge_failure) for row in rows)
    return TableLine(label, len(rows), void, failures, estimates)


def pass_at(n: int, correct: int, k: int) -> float:
    """Chance that one of k samples is right, drawn from n of which c = `correct` are right:
    1 - C(n-c,k)/C(n,k)."""
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


def majority(answers: Sequence[str | None]) -> str | None:
    """The most frequent answer after normalisation, as it was first written; among equals the one
    seen first. None: no vote."""
    votes: Counter[str] = Counter()
    written: dict[str, str] = {}
    for answer in answers:
        if answer is not None:
            key = normalise(answer)
            votes[key] += 1
            written.setdefault(key, answer)
    return written[votes.most_common(1)[0][0]] if votes else None


def question_values(samples: Sequence[ScoredRow], ks: Sequence[int] = ()) -> Values:
    """What one question adds to each metric: means over its scored samples. A metric that no sample
    has is absent.

    By EM, where there are k samples: `pass@k` over all of them (see `pass_at`), `mean@k` and
    `maj@k` over the first k."""
    if not samples:
        return {}
    values = {}
    for metric in METRICS:
        fields = [getattr(row, metric) for row in samples]
        known = [float(value) for value in fields if value is not None]
        if known:
            values[metric] = sum(known) / len(known)
    right = [row.em for row in samples if row.em is not None]
    for k in ks:
        if k <= len(right):
            vote = majority([row.prediction for row in samples[:k]])
            values[f"pass@{k}"] = pass_at(len(right), int(sum(right)), k)
            values[f"mean@{k}"] = sum(right[:k]) / k
            values[f"maj@{k}"] = float(same(vote or "", samples[0].golden_answers))
    return values


def macro(sets: Mapping[str, TableLine]) -> TableLine:
    """The unweighted mean over sets, of every metric that all of them have."""
    table = list(sets.values())
    means = {}
    for metric in table[0].estimates:
        estimates = [line.estimates[metric] for line in table if metric in line.estimates]
        if len(estimates) == len(table):
            means[metric] = together(estimates)
    rows = sum(line.rows for line in table)
    void = sum(line.void for line in table)
    failures = sum(line.failures for line in table)
    return TableLine("macro average", rows, void, failures, means)
