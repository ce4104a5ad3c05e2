"""Evaluation: fixed questions, one row a question and sample, scores with their intervals.

Owns tasks, rows, scores, summaries, baseline methods and scored prediction files, Promises that a void
leaves the estimate and is counted (law 2), that draws depend on seed, set, question and sample (law 7), and that
episodes come from the caller's rollout, the same one as in training (law 8). Refuses to know engines' kinds, training.
"""

from __future__ import annotations

from ssp.game.evaluation.kept import Kept, Play, make_tasks, mark, select
from ssp.game.evaluation.rows import Row, row_of, write_rows
from ssp.game.evaluation.summary import DRAWS, Estimate, Line, lines, macro, metrics, summarise

__all__ = [
    "DRAWS",
    "Estimate",
    "Line",
    "Play",
    "Row",
    "lines",
    "macro",
    "Kept",
    "make_tasks",
    "mark",
    "metrics",
    "row_of",
    "select",
    "summarise",
    "write_rows",
]
