"""What the field pays for a question by how it was answered: formulas alone.

`rate`: the share of its attempts that were right. `right` of `attempts`: the same as counts."""

import math


def solved_once(right: int, attempts: int) -> float:
    """(n - k) / (n - 1) for 0 < k < n, else 0: hard, and solved. Source: Dr. Zero (arXiv
    2601.07055), SQL-Zero (arXiv 2609.04697)."""
    if 0 < right < attempts:
        return (attempts - right) / (attempts - 1)
    return 0.0


def solvable(rate: float) -> float:
    """0 where nobody answers, else 1 - p. Source: Absolute Zero (arXiv 2505.03335)."""
    return 1.0 - rate if rate > 0.0 else 0.0


def variance(rate: float) -> float:
    """exp(-(p (1 - p) - 1/4)^2 / (2 * 0.01)): 1 at an even game. Source: SPICE (arXiv
    2510.24684)."""
    return math.exp(-((rate * (1.0 - rate) - 0.25) ** 2) / 0.02)


def uncertainty(share: float) -> float:
    """1 - 2 |s - 1/2|. `share`: of the attempts that agree with the most frequent answer. Source:
    R-Zero (arXiv 2508.05004)."""
    return 1.0 - 2.0 * abs(share - 0.5)


def uncertainty_of_code(share: float) -> float:
    """min(s, 1 - s), half of `uncertainty`. Source: R-Zero's released code."""
    return min(share, 1.0 - share)


def rarely_solved(rate: float) -> float:
    """1 - 1.8 p for 0 < p < 1, and -0.8 at both ends. Source: SSR (arXiv 2512.18552)."""
    return 1.0 - 1.8 * rate if 0.0 < rate < 1.0 else -0.8


LEAST = 0.2
"""What a question earns by depth that nobody, or everybody, answers."""
DEEP = 10
"""Searches from which a question earns everything by depth."""
FREE_OPENS = 1.5
"""Documents opened a search that cost nothing."""


def depth(right: int, attempts: int, searches: int) -> float:
    """r0 + (1 - r0) min(h / 10, 1) for 0 < k < n, else r0 = 0.2. `searches`: h, the fewest of a
    right attempt. Source: SearchMaster (arXiv 2608.01822)."""
    if not 0 < right < attempts:
        return LEAST
    return LEAST + (1.0 - LEAST) * min(searches / DEEP, 1.0)


def opening_penalty(opens: int, searches: int) -> float:
    """0.5 clip(opens / searches - 1.5, 0, 1), of the episode that asks. Source: SearchMaster."""
    return 0.5 * min(max(opens / searches - FREE_OPENS, 0.0), 1.0)
