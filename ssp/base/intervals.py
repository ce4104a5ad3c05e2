"""Means with their 95 % intervals: of shares, of counts, of differences between pairs, and of
several such means. An interval of a share has a width even where everything was right or wrong.
Nothing here is drawn at random."""

import math
from collections.abc import Sequence
from statistics import fmean, variance
from typing import NamedTuple

NORMAL = 1.96
"""Standard errors on each side of a mean."""


class Estimate(NamedTuple):
    """A mean, with the lower and the upper end of its interval."""

    mean: float
    low: float
    high: float


def wilson(rate: float, n: float, z: float = NORMAL) -> tuple[float, float]:
    """Wilson's score interval of a share seen in `n` independent trials (n may be a fraction, above
    0)."""
    square = z * z / n
    centre = rate + square / 2
    half = z * math.sqrt(rate * (1 - rate) / n + square / (4 * n))
    low, high = (centre - half) / (1 + square), (centre + half) / (1 + square)
    # at the ends rounding would leave the rate outside
    return max(0.0, min(low, rate)), min(1.0, max(high, rate))


def of_shares(values: Sequence[float]) -> Estimate:
    """The mean of independent values from 0 to 1, at least one, with Wilson's interval. Values
    between 0 and 1 vary less than those of right and wrong, so the interval is on the safe
    side."""
    mean = fmean(values)
    return Estimate(mean, *wilson(mean, len(values)))


def of_numbers(values: Sequence[float]) -> Estimate:
    """The mean of independent numbers, at least one, by the normal approximation. Where all are the
    same, or there is one, nothing is known of their spread, and both ends are the mean."""
    mean, half = fmean(values), 0.0
    if len(values) > 1:
        half = NORMAL * math.sqrt(variance(values) / len(values))
    return Estimate(mean, mean - half, mean + half)


def of_differences(values: Sequence[float]) -> Estimate:
    """The mean of one share minus another on the same items, each value from -1 to 1, at least one.
    After Agresti and Min 2005: half an item is added to each of four outcomes (both right, both
    wrong, only the one, only the other)."""
    n = len(values) + 2
    centre = sum(values) / n
    squares = sum(value * value for value in values) + 1
    half = NORMAL * math.sqrt((squares / n - centre * centre) / n)
    return Estimate(fmean(values), max(-1.0, centre - half), min(1.0, centre + half))


def together(estimates: Sequence[Estimate]) -> Estimate:
    """The unweighted mean of independent estimates, with an interval made of theirs (Zou and Donner
    2008)."""
    mean = fmean(one.mean for one in estimates)
    below = math.hypot(*[one.mean - one.low for one in estimates]) / len(estimates)
    above = math.hypot(*[one.high - one.mean for one in estimates]) / len(estimates)
    return Estimate(mean, mean - below, mean + above)
