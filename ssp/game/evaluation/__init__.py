"""Evaluation: fixed questions, one row a question and sample, scores with their intervals. A void
leaves the estimate and is counted (law 2), draws depend on seed, set, question and sample (law 7),
and episodes come from the caller's rollout, the same one as in training (law 8)."""

from ssp.game.evaluation.rows import (
    Kept,
    Play,
    ScoredRow,
    make_tasks,
    mark,
    row_of,
    select,
    write_rows,
)
from ssp.game.evaluation.summary import COUNTS, TableLine, lines, macro, metrics, summarise

__all__ = [
    "COUNTS",
    "Kept",
    "TableLine",
    "Play",
    "ScoredRow",
    "lines",
    "macro",
    "make_tasks",
    "mark",
    "metrics",
]
__all__ += ["row_of", "select", "summarise", "write_rows"]
