"""Runs in pairs: two arms that differ in a setting, at the same seed and from the same start.

Promises that both runs of a pair have one seed and one start, that no seed counts twice, that a pair's difference is
taken on the questions that both answered, and that several pairs are drawn as wholes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ssp.game.evaluation.summary import Estimate, estimate
from ssp.record.runfolder import MAY_CHANGE
from ssp.views.compare.answers import difference
from ssp.views.compare.runs import Run

STARTS = ("coldstart", "seed")
"""What the runs of one arm may differ in, with the start models."""

ANYWAY = tuple(key for key in MAY_CHANGE if key != "steps")
"""What else they may differ in: a longer run is another arm."""


@dataclass(frozen=True)
class Pair:
    """`ours` minus `theirs` at their ends, on so many `questions`; None when no question is in both."""

    ours: Run
    theirs: Run
    estimate: Estimate | None
    questions: int


@dataclass(frozen=True)
class Versus:
    """Two arms: their pairs, and where there are several the mean of their differences, pairs drawn anew."""

    pairs: list[Pair]
    estimate: Estimate | None


def paired(runs: Sequence[Run]) -> list[Versus]:
    """Every other arm against the first run's, where any of their runs pair."""
    arms: dict[str, dict[str, Run]] = {}
    for run in runs:
        arms.setdefault(_arm(run), {}).setdefault(_start(run), run)
    theirs, *others = arms.values()
    found = []
    for arm in others:
        pairs = [_pair(run, theirs[start]) for start, run in arm.items() if start in theirs]
        known = [pair.estimate.mean for pair in pairs if pair.estimate is not None]
        if pairs:
            found.append(Versus(pairs, estimate(known, 0, "pairs") if len(known) > 1 else None))
    return found


def repeated(runs: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Runs that are in no pair, each with the one before it that has the same settings, seed and start."""
    found: dict[tuple[str, str], Run] = {}
    return [(run, one) for run in runs if (one := found.setdefault((_arm(run), _start(run)), run)) is not run]


def _pair(ours: Run, theirs: Run) -> Pair:
    found, questions = difference(ours.metric, ours.answers(ours.end.step), theirs.answers(theirs.end.step))
    return Pair(ours, theirs, found, questions)


def _arm(run: Run) -> str:
    """What a run is, but for its seed and start, and for where it runs."""
    return repr(sorted((key, value) for key, value in run.settings.items() if _of(key) not in (*ANYWAY, *STARTS)))


def _start(run: Run) -> str:
    return repr(sorted((key, value) for key, value in run.settings.items() if _of(key) in STARTS))


def _of(key: str) -> str:
    """The block that decides about a key; a start model belongs to the cold start."""
    return STARTS[0] if key.endswith(".model") and not key.startswith("judge.") else key.split(".")[0]
