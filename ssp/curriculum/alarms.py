"""Alarms for a collapse of diversity: a one-sided CUSUM (Page 1954) of each watched figure against the run's own beginning.

Owns the rule (docs/curriculum.md):
- The first `window` observations fill the windows and are left out; the next `window` are the baseline: mean m, deviation
  s. Rounds without an accepted question are no observation.
- The unit of a round with n new questions is u = max(s, `LEAST`, sqrt(m (1 - m) / n)), with m within [LEAST, 1 - LEAST];
  also for what is of a window, whose values resemble each other: their sum spreads as that of single rounds does.
- S = max(0, S + min((x - m) / u, `MOST`) - `ALLOWED`), x counted in the direction that is worse. S >= `LIMIT` is an alarm.
- It lasts until S is 0 again. S never exceeds twice `LIMIT`, so that what is well again is said to be.
So a worsening by less than ALLOWED * LEAST never alarms, whatever its duration, and no single observation does.
Promises that an alarm names the figure, both numbers and a next step, once for as long as it lasts. Refuses to judge
what a figure was before the baseline ends, and to stop anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import fmean, pstdev

LEAST = 0.05
"""Least unit: figures are shares."""
ALLOWED, MOST, LIMIT = 2.0, 6.0, 8.0
"""In units: what each observation may be worse, what it may count at most, and the sum that is an alarm."""

NEXT = {
    "near_duplicates": "read the newest questions (ssp board RUN, Questions); more entropy or KL for the proposer, "
    "several proposals a target, or rules for near-duplicates",
    "coverage": "see which targets and documents are left out (ssp bank RUN); the proposer's valid questions come from few "
    "of them",
    "answer_entropy": "see which answers are left (ssp bank RUN --valid); the others are rejected or not asked about",
}
"""Watched figure → what to do."""


@dataclass
class Cusum:
    """One figure, of which more is worse. `baseline` observations after `left_out`; `sum` in units."""

    window: int
    left_out: int = 0
    baseline: list[float] = field(default_factory=list)
    sum: float = 0.0
    lasting: bool = False

    @property
    def mean(self) -> float:
        """Of the baseline."""
        return fmean(self.baseline)

    def see(self, value: float, questions: int) -> bool:
        """One observation, in [0, 1], of so many questions; whether an alarm begins with it."""
        if self.left_out < self.window:
            self.left_out += 1
            return False
        if len(self.baseline) < self.window:
            self.baseline.append(value)
            return False
        within = min(max(self.mean, LEAST), 1 - LEAST)
        unit = max(pstdev(self.baseline), LEAST, math.sqrt(within * (1 - within) / max(questions, 1)))
        worse = min((value - self.mean) / unit, MOST) - ALLOWED
        self.sum = min(max(0.0, self.sum + worse), 2 * LIMIT)
        begins = self.sum >= LIMIT and not self.lasting
        self.lasting = self.sum >= LIMIT or (self.lasting and self.sum > 0)
        return begins


class Alarms:
    """The watched figures of a run. `see` once a round, in order."""

    def __init__(self, window: int) -> None:
        self._cusums = {name: Cusum(window) for name in NEXT}

    def see(self, step: int, values: dict[str, float], questions: int) -> list[str]:
        """The watched figures of a round of so many new questions, those that it has; the alarms that begin, a line each."""
        found = []
        for name, cusum in self._cusums.items():
            if name not in values:
                continue
            rises = name == "near_duplicates"
            value = values[name] if rises else 1 - values[name]
            if cusum.see(min(max(value, 0.0), 1.0), questions):
                before = cusum.mean if rises else 1 - cusum.mean
                found.append(
                    f"curriculum alarm: {name} at step {step}: {values[name]:.2f}, and {before:.2f} at the run's beginning "
                    f"(docs/curriculum.md). Next: {NEXT[name]}."
                )
        return found

    @property
    def lasting(self) -> list[str]:
        """The figures whose alarm lasts."""
        return [name for name, cusum in self._cusums.items() if cusum.lasting]
