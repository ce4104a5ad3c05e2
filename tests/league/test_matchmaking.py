"""Who is met: the formulas, the draws' frequencies, and what a draw depends on."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ssp.selfplay.league.matchmaking import KINDS, draw, pfsp, weights

CHANCES, RATINGS, MEMBERS = [0.9, 0.5, 0.2, 0.5], [10.0, 70.0, 70.0, -5.0], [3, 8, 12, 20]
DRAWS = 4000
CRITICAL = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47}
"""Of chi-square, at one in a thousand."""


def test_pfsp_is_the_published_formula() -> None:
    hard = np.array([0.1**2, 0.5**2, 0.8**2, 0.5**2])
    assert pfsp(CHANCES) == pytest.approx(hard / hard.sum())
    assert pfsp(CHANCES, power=0) == pytest.approx([0.25] * 4)
    assert pfsp([1.0, 1.0]) == pytest.approx([0.5, 0.5])  # nobody is of use: all alike


@pytest.mark.parametrize("power", [30.0, 400.0, 1e6])
def test_a_sharper_choice_stays_a_choice(power: float) -> None:
    """Also against members that one nearly always beats."""
    assert pfsp([0.9, 0.5, 0.7], power) == pytest.approx([0, 1, 0], abs=1e-4)
    assert pfsp([0.999, 0.99, 0.98, 0.98], power) == pytest.approx([0, 0, 0.5, 0.5], abs=1e-4)
    assert pfsp([1.0, 1 - 1e-9], power).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("self", [1, 0, 0, 0, 0]),
        ("past", [0, 0.25, 0.25, 0.25, 0.25]),
        ("prioritised", [0, *pfsp(CHANCES)]),
        ("best", [0, 0, 0, 1, 0]),  # of equals the newest
    ],
)
def test_each_kind_has_its_weights_and_is_self_without_members(kind: str, wanted: list[float]) -> None:
    assert weights({kind: 1.0}, CHANCES, RATINGS) == pytest.approx(wanted)
    assert weights({kind: 1.0}, [], []).tolist() == [1.0]


def test_a_mix_is_its_kinds_by_their_shares() -> None:
    shares = dict(zip(KINDS, (2.0, 1.0, 4.0, 1.0), strict=True))
    each = [weights({kind: 1.0}, CHANCES, RATINGS) for kind in KINDS]
    assert weights(shares, CHANCES, RATINGS) == pytest.approx(np.array([2, 1, 4, 1]) @ each / 8)


@pytest.mark.parametrize(
    "shares", [{"prioritised": 1.0}, {"past": 1.0}, {"self": 0.35, "past": 0.15, "prioritised": 0.5}]
)
def test_frequencies_match_the_formula(shares: dict[str, float]) -> None:
    odds = weights(shares, CHANCES, RATINGS)
    met = Counter(draw(MEMBERS, odds, 7, "solver", round_) for round_ in range(DRAWS))
    names = [None, *MEMBERS]
    assert set(met) <= {name for name, odd in zip(names, odds, strict=True) if odd > 0}

    def distance(expected: np.ndarray) -> tuple[float, int]:
        there = expected > 0
        seen = np.array([met[name] for name in names])[there]
        return float(((seen - DRAWS * expected[there]) ** 2 / (DRAWS * expected[there])).sum()), int(there.sum()) - 1

    square, free = distance(odds)
    assert square < CRITICAL[free]
    if "prioritised" in shares:  # and the test can fail
        square, free = distance(weights(shares, CHANCES, RATINGS, power=1.5))
        assert square > CRITICAL[free]


def test_draws_are_seeded_and_independent_of_each_other() -> None:
    odds = np.full(5, 0.2)

    def drawn(*labels: str | int, seed: int = 0) -> list[int | None]:
        return [draw(MEMBERS, odds, seed, *labels, round_) for round_ in range(50)]

    assert drawn("solver") == drawn("solver")
    assert len({tuple(drawn("solver")), tuple(drawn("proposer")), tuple(drawn("solver", seed=1))}) == 3
