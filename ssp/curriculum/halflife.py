"""The half-life of a question: after how many rounds the solver's rate on it has come half way to 1.

Owns the counts and the estimate. A question that is asked again is watched from its first rate p < 1 on; its time has come
when a later rate is at least (1 + p) / 2. Questions of which that is not known yet are censored at their last rate: the
half-life is the median of Kaplan and Meier (1958). Promises None where nothing was asked again, or where the curve has not
come down to one half. Refuses to wait: a rate is what a few attempts say, so the fewer they are the shorter it looks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction


@dataclass
class _Watched:
    """First round, the rate that is half way, rounds watched so far, whether its time has come."""

    first: int
    half: float
    rounds: int = 0
    over: bool = False


class HalfLife:
    """Rates of questions, in the order of rounds."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}
        self._came: Counter[int] = Counter()  # rounds → questions whose time came then
        self._censored: Counter[int] = Counter()  # rounds → questions that were last seen then

    def add(self, question: str, round_: int, rate: float) -> None:
        """A question's solve rate in a round."""
        one = self._watched.get(question)
        if one is None:
            if rate < 1:
                self._watched[question] = _Watched(round_, (1 + rate) / 2)
            return
        if one.over or round_ == one.first:
            return
        if one.rounds:
            self._censored[one.rounds] -= 1
        one.rounds = round_ - one.first
        one.over = rate >= one.half - 1e-9  # 11 of 12 is half way from 5 of 6
        (self._came if one.over else self._censored)[one.rounds] += 1

    def median(self) -> float | None:
        """In rounds."""
        left = sum(self._came.values()) + sum(self._censored.values())
        alive = Fraction(1)  # exact: one half is met, not nearly met
        for rounds in sorted({*self._came, *self._censored}):
            alive *= 1 - Fraction(self._came[rounds], left or 1)
            left -= self._came[rounds] + self._censored[rounds]
            if self._came[rounds] and 2 * alive <= 1:
                return float(rounds)
        return None
