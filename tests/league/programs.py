"""Small zero-sum games solved: the linear program that measures of exploitability are compared with.

A dense simplex, since scipy is no dependency; each solution is checked: no row gains, and no column loses, more than
`EXACT` of the payoffs' range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

EXACT = 1e-7
TINY = 1e-11


@dataclass(frozen=True)
class Solution:
    """The game's value to the row player, and a mixture of each side that guarantees it (each sums to 1)."""

    value: float
    rows: np.ndarray
    columns: np.ndarray


def solve(payoff: np.ndarray) -> Solution:
    """An equilibrium of the zero-sum game. With all payoffs above 0: maximise sum(y) under `payoff @ y <= 1`, y >= 0; the
    value is 1 / sum(y), and the program's prices are the rows' mixture (Dantzig 1951)."""
    n, m = payoff.shape
    low, span = payoff.min(), max(float(np.ptp(payoff)), TINY)
    # Columns: right-hand side, slacks, y. The last row holds the prices; the rows above stay lexically above 0.
    table = np.zeros((n + 1, 1 + n + m))
    table[:n, 0], table[:n, 1 : n + 1], table[:n, n + 1 :] = 1.0, np.eye(n), (payoff - low) / span + 1.0
    table[n, n + 1 :] = -1.0
    basis = np.arange(1, n + 1)
    for _ in range(100 * (n + m)):
        enter = 1 + int(np.argmin(table[n, 1:]))
        if table[n, enter] >= -TINY:
            break
        able = np.flatnonzero(table[:n, enter] > TINY)
        ratios = table[able, : n + 1] / table[able, enter : enter + 1]
        leave = able[np.lexsort(ratios.T[::-1])[0]]  # the lexical rule: no cycling where ratios are equal
        table[leave] /= table[leave, enter]
        others = np.arange(n + 1) != leave
        table[others] -= np.outer(table[others, enter], table[leave])
        basis[leave] = enter
    weights = np.zeros(1 + n + m)
    weights[basis] = table[:n, 0]
    rows, columns = np.maximum(table[n, 1 : n + 1], 0.0), np.maximum(weights[n + 1 :], 0.0)
    found = Solution(float(low + span * (1 / table[n, 0] - 1)), rows / rows.sum(), columns / columns.sum())
    gap = (payoff @ found.columns).max() - (found.rows @ payoff).min()
    assert gap <= EXACT * span, f"the simplex method did not solve a game of {n} x {m}"
    return found


def exploited(payoff: np.ndarray, mixture: np.ndarray) -> float:
    """How much less than the game's value the row player's `mixture` may get."""
    return solve(payoff).value - float((mixture @ payoff).min())
