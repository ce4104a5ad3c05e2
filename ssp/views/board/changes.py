"""Changes of a run's figures, from its start to its end, with their intervals.

A figure of steps is compared by the means of its first and last `ENDS` steps, with Student's
interval over the steps. An accuracy is compared by its first and last evaluation, with an interval
made of Wilson's over the questions. A change counts where its 95 % interval leaves out 0."""

import math
from collections.abc import Sequence
from statistics import fmean, variance
from typing import NamedTuple

from ssp.base.intervals import wilson

ENDS = 5
"""Steps whose mean stands for the start of a run, and for its end."""
STUDENT = {2: 4.303, 3: 2.776, 4: 2.447, 5: 2.306}
"""Steps at each end → standard errors on each side of a difference."""

Points = Sequence[tuple[int, float]]
"""(step, value), by step."""


class Change(NamedTuple):
    """How `name` went from `start` to `end`. `over`: of what each is. `low`, `high`: the interval
    of the difference, None where nothing is known of it."""

    name: str
    start: float
    end: float
    share: bool
    over: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def way(self) -> int:
        """1 for a rise, -1 for a fall, 0 where neither is certain."""
        if self.low is None or self.high is None:
            return 0
        return int(self.low > 0) - int(self.high < 0)

    def ends(self) -> str:
        """Start and end for a person."""
        return f"{self.name} {self._form(self.start)} → {self._form(self.end)}"

    def difference(self) -> str:
        """The difference for a person."""
        told = self._signed(self.end - self.start)
        return f"{told} points" if self.share else told

    def facts(self) -> list[str]:
        """What a card says of it: its ends, the difference with its interval, and of how much."""
        interval = "too few for an interval"
        if self.low is not None and self.high is not None:
            interval = f"95\u00a0%: {self._signed(self.low)} to {self._signed(self.high)}"
        return [self.ends(), f"{self.difference()}, {interval}", f"over {self.over}, one run"]

    def _signed(self, value: float) -> str:
        return f"{100 * value:+.1f}" if self.share else f"{value:+.2f}"

    def _form(self, value: float) -> str:
        return percent(value) if self.share else f"{value:.2f}"


def percent(value: float) -> str:
    """A share as every view writes it; the sign stays on the number's line."""
    return f"{100 * value:.1f}\u00a0%"


def end_of(points: Points) -> float | None:
    """The mean of the last `ENDS` values, None without any."""
    return fmean(value for _, value in points[-ENDS:]) if points else None


def over_steps(name: str, points: Points, share: bool = True) -> Change | None:
    """The change of a figure of steps; None where there are fewer than two."""
    values = [value for _, value in points]
    steps = min(ENDS, len(values) // 2)
    if not steps:
        return None
    first, last = values[:steps], values[-steps:]
    over = f"{steps} step{'' if steps == 1 else 's'} at each end"
    change = Change(name, fmean(first), fmean(last), share, over)
    if steps == 1:
        return change
    half = STUDENT[steps] * math.sqrt((variance(first) + variance(last)) / steps)
    difference = change.end - change.start
    return change._replace(low=difference - half, high=difference + half)


def over_evaluations(name: str, points: Points, items: Points) -> Change | None:
    """The change of an accuracy; None where it was measured less than twice. Intervals of two
    shares make that of their difference (Zou and Donner 2008)."""
    if len(points) < 2:
        return None
    asked = dict(items)
    (first, start), (last, end) = points[0], points[-1]
    change = Change(name, start, end, True, "an unknown number of questions")
    if not asked.get(first) or not asked.get(last):
        return change
    sizes = dict.fromkeys([f"{asked[first]:,.0f}", f"{asked[last]:,.0f}"])
    over = f"{' and '.join(sizes)} questions"
    low, high = wilson(start, asked[first])
    least, most = wilson(end, asked[last])
    difference = end - start
    below = math.hypot(end - least, high - start)
    above = math.hypot(most - end, start - low)
    return change._replace(over=over, low=difference - below, high=difference + above)
