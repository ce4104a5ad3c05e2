"""Ratings: planted strengths come back, with errors that are as large as they say, and no word on what was not played."""

from __future__ import annotations

import numpy as np
import pytest

from ssp.base.played import ANSWERS, ASKS
from ssp.extras.league.payoff import MatchResult, PayoffTable
from ssp.extras.league.ratings import ELO, PRIOR, fit


def planted(
    seed: int, size: int = 14, met: float = 0.6, games: int = 50, alike: float = 0.0
) -> tuple[PayoffTable, dict[str, np.ndarray]]:
    """A table of `size` versions a role, of whose pairs a share `met`, in `games` questions of 4 attempts; and the truth.
    `alike`: how much the questions of a pair differ, in logits."""
    rng, table = np.random.default_rng(seed), PayoffTable()
    strength = {role: rng.normal(0, 1, size) for role in (ANSWERS, ASKS)}
    for i in range(size):
        for j in range(size):
            if i == j or rng.random() < met:
                logit = strength[ANSWERS][i] - strength[ASKS][j] + alike * rng.normal(size=games)
                table.add([MatchResult(i, j, int(k), 4) for k in rng.binomial(4, 1 / (1 + np.exp(-logit)))])
    return table, strength


@pytest.mark.parametrize("alike", [0.0, 2.0])
def test_errors_are_as_large_as_they_say(alike: float) -> None:
    """Centred errors over their standard errors: about 1 in the mean square, also where questions differ much (the strength
    is then of the mean over questions, which lies nearer to 1/2: compared within solvers, whose order is the same)."""
    scores = []
    for seed in range(12):
        table, truth = planted(seed, alike=alike, games=24)
        found = fit(table, prior=1.0)
        shrink = 1 / np.sqrt(1 + alike**2 / 1.7**2)
        true = np.concatenate([truth[ANSWERS], truth[ASKS]]) * shrink
        error = found.mean - (true - true.mean())
        scores += list(error / np.sqrt(np.diag(found.cov)))
    assert 0.75 <= np.sqrt(np.mean(np.square(scores))) <= 1.3


def test_who_met_nobody_in_common_is_compared_by_the_prior_alone() -> None:
    """Pure self-play: version i of one role meets version i of the other, and nothing says whether either improved."""
    table = PayoffTable()
    for version in range(6):
        table.add([MatchResult(version, version, k, 4) for k in (2, 3, 1, 2) * 50])
    found = fit(table)
    gain, error = found.gain(ANSWERS, 5, 0)
    assert abs(gain) < 1 and error > 0.9 * PRIOR * ELO
    assert found.chance(3, 3) == pytest.approx(0.5, abs=0.01)
    table.add([MatchResult(5, 0, 3, 4)] * 200 + [MatchResult(0, 5, 1, 4)] * 200)  # one look across: it did
    gain, error = fit(table).gain(ANSWERS, 5, 0)
    assert gain > 100 and error < 60


def test_two_versions_by_hand() -> None:
    """75 of 100 against one proposer, without much of a prior: logit 3 apart from 1 is log 3, its error sqrt(1 / (n p q))."""
    table = PayoffTable()
    table.add([MatchResult(1, 1, k, 1) for k in [1] * 75 + [0] * 25])
    found = fit(table, prior=100.0)
    score = found.mean[0] - found.mean[1]
    assert score == pytest.approx(np.log(3), abs=1e-3)
    both = found.cov[0, 0] + found.cov[1, 1] - 2 * found.cov[0, 1]
    assert np.sqrt(both) == pytest.approx(1 / np.sqrt(100 * 0.75 * 0.25), rel=0.01)
    high, low = found.elo(ANSWERS, 1)[0], found.elo(ASKS, 1)[0]
    assert 1 / (1 + 10 ** ((low - high) / 400)) == pytest.approx(0.75, abs=1e-3)


def test_a_walk_expects_the_next_version_where_the_last_one_is() -> None:
    table = PayoffTable()
    table.add([MatchResult(1, 1, 4, 4), MatchResult(1, 1, 3, 4), MatchResult(1, 1, 4, 4)] * 30)
    alone, linked = (fit(table, walk=walk, also={ANSWERS: [2], ASKS: [9]}) for walk in (None, 0.1))
    assert linked.gain(ANSWERS, 2, 1)[0] == pytest.approx(0, abs=1e-6)
    assert linked.gain(ANSWERS, 2, 1)[1] == pytest.approx(0.1 * ELO, rel=0.01)
    assert linked.gain(ASKS, 9, 1)[1] == pytest.approx(0.1 * np.sqrt(8) * ELO, rel=0.01)
    assert alone.gain(ANSWERS, 2, 1)[0] < -100
