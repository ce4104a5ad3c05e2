"""Exact match: 1 when the answer that the response hands in equals a gold answer after normalisation, else 0.

Formula: Search-R1's `qa_em`, on the response alone (the original reads prompt and response as one string).
Refuses to give partial credit.
"""

from __future__ import annotations

from collections.abc import Sequence

from ssp import protocols
from ssp.episode import SOLVER
from ssp.judge import same


def em(response: str, golds: Sequence[str], protocol: str = "mini") -> float:
    """1.0 or 0.0. `response`: what followed the prompt; its answer is the one that its last turn hands in.

    InputError for an unknown protocol id or a gold answer that normalises to nothing.
    """
    answer = protocols.get(protocol).final(SOLVER, response)
    return float(same("" if answer is None else answer, golds))
