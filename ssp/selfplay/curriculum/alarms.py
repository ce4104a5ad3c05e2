"""The alarm for near-duplicates: the newest rounds' share against that of the run's own beginning."""

from __future__ import annotations

import math
from collections import deque

LATEST, LEAST, SIGMAS = 3, 0.2, 5.0

NEXT = (
    "read the newest questions (ssp board RUN, Questions); more entropy or KL for the proposer, several proposals a "
    "target, or rules for near-duplicates"
)


class Alarm:
    """Of a run. `see` once a round, in order. `lasting`: whether the alarm lasts."""

    def __init__(self, window: int) -> None:
        self._window, self._left_out, self._rounds = window, 0, 0
        self._near = self._questions = 0.0
        self._latest: deque[tuple[float, int]] = deque(maxlen=LATEST)
        self.lasting = False

    def see(self, step: int, share: float, questions: int) -> str:
        """A round of so many new questions, above 0, of which that share are near-duplicates. The line of an alarm that
        begins, else an empty one."""
        if self._left_out < self._window:
            self._left_out += 1
            return ""
        if self._rounds < self._window:
            self._rounds += 1
            self._near += share * questions
            self._questions += questions
            return ""
        self._latest.append((share, questions))
        kept = sorted(self._latest)[:-1]
        before, n = self._near / self._questions, sum(number for _, number in kept)
        if not n:
            return ""
        within = min(max(before, 0.05), 0.95)
        limit = max(LEAST, SIGMAS * math.sqrt(within * (1 - within) / n))
        worse = sum(value * number for value, number in kept) / n - before
        began = worse >= limit and not self.lasting
        self.lasting = worse >= (limit / 2 if self.lasting else limit)
        if not began:
            return ""
        return (
            f"curriculum alarm: near_duplicates at step {step}: {share:.2f}, and {before:.2f} at the run's beginning "
            f"(docs/curriculum.md). Next: {NEXT}."
        )
