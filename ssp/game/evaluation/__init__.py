"""Evaluation: fixed questions, one row a question and sample, scores with their intervals. A void
is counted and leaves the estimate (law 2). Draws depend on seed, set, question and sample (law 7).
The caller plays the episodes, by the rollout of the training (law 8)."""

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
    "Play",
    "ScoredRow",
    "TableLine",
    "lines",
    "macro",
    "make_tasks",
    "mark",
    "metrics",
    "row_of",
    "select",
    "summarise",
    "write_rows",
]
