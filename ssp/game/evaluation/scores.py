"""Scores beyond one answer: what a search found, and several answers to one question."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from ssp.base.errors import InvariantError
from ssp.game.judge import normalise


def found(texts: Iterable[str], golds: Sequence[str]) -> bool:
    """True when a gold answer stands, as whole words, in one of the texts."""
    wanted = [f" {normalise(gold)} " for gold in golds]
    return any(gold in f" {normalise(text)} " for text in texts for gold in wanted)


def pass_at(n: int, correct: int, k: int) -> float:
    """Chance that at least one of k samples, drawn from n of which `correct` are right, is right: 1 - C(n-c,k)/C(n,k)."""
    if not 0 <= correct <= n or not 1 <= k <= n:
        raise InvariantError(f"pass@{k} of {correct} right among {n}")
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


def majority(answers: Sequence[str | None]) -> str | None:
    """The most frequent answer after normalisation, as it was first written; of several the first seen. None: no vote."""
    first: dict[str, str] = {}
    votes: Counter[str] = Counter()
    for answer in answers:
        if answer is not None:
            first.setdefault(normalise(answer), answer)
            votes[normalise(answer)] += 1
    return first[max(votes, key=votes.__getitem__)] if votes else None
