"""Ratings and exploitability against independent solvers: scipy's rank correlation and its linear programs."""

from __future__ import annotations

import numpy as np
import pytest
from programs import exploited, solve

from ssp.episode import PROPOSER, SOLVER
from ssp.league.exploitability import exploitability
from ssp.league.payoff import PayoffTable, Result
from ssp.league.ratings import fit

optimize = pytest.importorskip("scipy.optimize")
stats = pytest.importorskip("scipy.stats")


def met(pattern: str, size: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Which solvers met which proposers: all, half of the pairs, or each version its own opponents and five of the past."""
    if pattern == "all":
        return [(i, j) for i in range(size) for j in range(size)]
    if pattern == "half":
        return [(i, j) for i in range(size) for j in range(size) if i == j or rng.random() < 0.5]
    pairs = {(i, i) for i in range(size)}
    for new in range(1, size):
        for old in rng.choice(new, min(new, 5), replace=False).tolist():
            pairs |= {(new, old), (old, new)}
    return sorted(pairs)


def simulated(
    pattern: str, size: int, seed: int, questions: int = 60, cyclic: float = 0.0
) -> tuple[PayoffTable, dict[str, np.ndarray]]:
    """A payoff table of planted strengths, 4 attempts a question; `cyclic`: standard deviation, in logits, of what no
    strength explains."""
    rng, table = np.random.default_rng(seed), PayoffTable()
    strength = {role: rng.normal(0, 1.2, size) for role in (SOLVER, PROPOSER)}
    other = cyclic * rng.normal(size=(size, size))
    for i, j in met(pattern, size, rng):
        chance = 1 / (1 + np.exp(strength[PROPOSER][j] - strength[SOLVER][i] - other[i, j]))
        table.add([Result(i, j, int(k), 4) for k in rng.binomial(4, chance, questions)])
    return table, strength


@pytest.mark.parametrize(
    ("pattern", "size", "cyclic"),
    [("all", 8, 0.0), ("half", 24, 0.0), ("league", 24, 0.0), ("league", 40, 0.0), ("all", 24, 0.5)],
)
def test_ranks_of_planted_strengths_are_recovered(pattern: str, size: int, cyclic: float) -> None:
    """Spearman's correlation of at least 0.95 for both roles, for every seed, on each way of meeting."""
    for seed in range(3):
        table, truth = simulated(pattern, size, seed, cyclic=cyclic)
        ratings = fit(table)
        for role in (SOLVER, PROPOSER):
            elo = [ratings.elo(role, version)[0] for version in range(size)]
            assert stats.spearmanr(elo, truth[role]).statistic >= 0.95, (seed, role)


def value(payoff: np.ndarray) -> float:
    """What the row player can guarantee: a linear program by HiGHS."""
    n, m = payoff.shape
    done = optimize.linprog(
        np.r_[np.zeros(n), -1.0],
        A_ub=np.c_[-payoff.T, np.ones(m)],
        b_ub=np.zeros(m),
        A_eq=[np.r_[np.ones(n), 0.0]],
        b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None)],
    )
    assert done.success
    return -float(done.fun)


def best(gains: np.ndarray) -> float:
    """The most that a mixture over moves with these gains earns: a linear program too."""
    done = optimize.linprog(-gains, A_eq=[np.ones(len(gains))], b_eq=[1.0], bounds=(0, None))
    assert done.success
    return -float(done.fun)


@pytest.mark.parametrize("seed", range(3))
def test_exploitability_is_the_value_of_the_linear_programs(seed: int) -> None:
    """Of rates of answers, whole numbers full of ties, and antisymmetric games, 2 x 2 to 6 x 6."""
    rng = np.random.default_rng(seed)
    for _ in range(10):
        n, m = rng.integers(2, 7, 2)
        square = rng.normal(size=(n, n))
        for payoff in (rng.random((n, m)), rng.integers(-1, 2, (n, m)).astype(float), square - square.T):
            rows, columns = payoff.shape
            x, y = rng.dirichlet(np.ones(rows)), rng.dirichlet(np.ones(columns))
            game, answer, reply = value(payoff), best(-(x @ payoff)), best(payoff @ y)
            assert solve(payoff).value == pytest.approx(game, abs=1e-8)
            assert exploited(payoff, x) == pytest.approx(game + answer, abs=1e-8)
            assert exploited(-payoff.T, y) == pytest.approx(reply - game, abs=1e-8)
            assert exploitability(payoff, x, y) == pytest.approx(reply + answer, abs=1e-8)
            found = solve(payoff)
            assert exploitability(payoff, found.rows, found.columns) == pytest.approx(0.0, abs=1e-8)
