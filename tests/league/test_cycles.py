"""The non-transitive share: known matrices, the identity with the symmetric game, and what counting alone makes."""

from __future__ import annotations

import numpy as np
import pytest

from ssp.league.cycles import two_sided

LOTS = 1e12


def seen(logits: np.ndarray, attempts: float) -> tuple[np.ndarray, np.ndarray]:
    """Expected counts of so many attempts a pair."""
    return attempts / (1 + np.exp(-logits)), np.full(logits.shape, float(attempts))


def parts(seed: int, n: int = 6, m: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """An additive matrix around 0, and one whose rows and columns sum to 0."""
    rng = np.random.default_rng(seed)
    ranked = rng.normal(size=(n, 1)) - rng.normal(size=(1, m))
    rest = rng.normal(size=(n, m))
    rest = rest - rest.mean(0) - rest.mean(1, keepdims=True) + rest.mean()
    return ranked - ranked.mean(), rest


def symmetric(advantage: np.ndarray) -> float:
    """The curl's share of an antisymmetric matrix (logit that the row beats the column): what row means leave over."""
    strength = advantage.mean(axis=1)
    curl = advantage - (strength[:, None] - strength[None, :])
    whole = float((advantage**2).sum())
    return float((curl**2).sum()) / whole if whole > 0 else 0.0


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0, 5.0])
def test_a_planted_share_comes_back(scale: float) -> None:
    ranked, rest = parts(0)
    rest = scale * rest
    truth = (rest**2).sum() / ((rest**2).sum() + (ranked**2).sum())
    found = two_sided(*seen(0.7 + ranked + rest, LOTS))
    assert found is not None
    assert found.share == pytest.approx(truth, abs=1e-4) and found.raw == pytest.approx(truth, abs=1e-4)
    assert (found.p < 0.01) == (scale > 0)


def test_the_share_is_that_of_the_symmetric_game() -> None:
    """Players are pairs (i, j); the advantage of one over another is what its solver does on the other's questions, less what
    the other's does on its own."""
    ranked, rest = parts(3)
    logits = -1.3 + ranked + 0.6 * rest
    n, m = logits.shape
    pairs = [(i, j) for i in range(n) for j in range(m)]
    advantage = np.array([[logits[i, b] - logits[a, j] for a, b in pairs] for i, j in pairs])
    assert (advantage == -advantage.T).all()
    found = two_sided(*seen(logits, LOTS))
    assert found is not None and found.raw == pytest.approx(symmetric(advantage), abs=1e-4)


def test_rock_paper_scissors_is_all_cycle_and_a_ladder_is_none() -> None:
    rps = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
    ladder = np.subtract.outer(np.arange(4.0), np.arange(4.0))
    assert symmetric(rps) == pytest.approx(1) and symmetric(ladder) == pytest.approx(0)
    for matrix, share in ((rps, 1.0), (ladder, 0.0)):
        found = two_sided(*seen(matrix, LOTS))
        assert found is not None and found.share == pytest.approx(share, abs=1e-6)


def test_counting_alone_is_taken_off() -> None:
    """Additive tables seen through few attempts look cyclic; the share does not, and `p` cries wolf as seldom as it says."""
    raw, share, alarms = [], [], 0
    for seed in range(40):
        ranked, _ = parts(seed, 8, 8)
        p = 1 / (1 + np.exp(-ranked))
        graded = np.full(p.shape, 30.0)
        found = two_sided(np.random.default_rng(seed).binomial(30, p).astype(float), graded, seed)
        assert found is not None
        raw.append(found.raw)
        share.append(found.share)
        alarms += found.p < 0.05
    assert np.mean(raw) > 0.04 and np.mean(share) < 0.25 * np.mean(raw)
    assert alarms <= 6  # of 40; 2 expected


def test_a_real_cycle_is_seen_through_few_attempts() -> None:
    """Small tables, in which the ranking itself swallows much of the noise, and each time; on average the planted share."""
    ranked, rest = parts(1, 4, 4)
    ranked, rest = 0.35 * ranked, 0.7 * rest
    truth = float((rest**2).sum() / ((rest**2).sum() + (ranked**2).sum()))
    rng, graded, p = np.random.default_rng(0), np.full(ranked.shape, 60.0), 1 / (1 + np.exp(-ranked - rest))
    every = [two_sided(rng.binomial(60, p).astype(float), graded) for _ in range(100)]
    shares = [found.share for found in every if found is not None]
    assert len(shares) == 100 and np.mean(shares) == pytest.approx(truth, abs=0.03)
    assert np.mean([found is not None and found.p < 0.05 for found in every]) > 0.7


def test_pairs_that_never_met_are_left_out() -> None:
    ranked, rest = parts(5, 7, 7)
    right, graded = seen(ranked, LOTS)
    hidden = np.random.default_rng(0).random(graded.shape) < 0.3
    right[hidden], graded[hidden] = 0.0, 0.0
    found = two_sided(right, graded)
    assert found is not None and found.share == pytest.approx(0, abs=1e-4)


def test_where_the_ranking_uses_everything_up_there_is_no_answer() -> None:
    """Pure self-play: one opponent a version. And a table in which nothing differs."""
    assert two_sided(np.eye(4), 2 * np.eye(4)) is None
    assert two_sided(np.ones((3, 3)), np.full((3, 3), 2.0)) is None
    assert two_sided(np.zeros((2, 2)), np.zeros((2, 2))) is None
