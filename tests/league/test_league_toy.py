"""On a game that only goes round, pure self-play goes round and the league comes to rest near the equilibrium.

Distances are of both sides together: 0 at the equilibrium, 1 where each loses every game to its best answer.
"""

from __future__ import annotations

import numpy as np
import pytest
from toys import play, softmax, toy

ROUNDS, EPSILON, EPSILON_AVERAGE = 600, 0.35, 0.06


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_self_play_cycles_and_the_league_converges(seed: int) -> None:
    alone, league = play(toy("self"), seed, ROUNDS), play(toy("mix"), seed, ROUNDS)
    late = slice(-150, None)
    assert alone.last[late].mean() > 0.8  # a pure move, which its answer beats nearly always
    assert alone.last[late].mean() > alone.last[:20].mean()  # and further off than it began
    assert league.last[late].mean() < EPSILON and league.average[-1] < EPSILON_AVERAGE
    assert alone.average[-1] > EPSILON_AVERAGE


def test_a_toy_run_is_its_seed() -> None:
    one, same, other = (play(toy("mix"), seed, 30) for seed in (1, 1, 2))
    assert one.last.tolist() == same.last.tolist() != other.last.tolist()


def test_where_there_is_a_saddle_self_play_is_enough() -> None:
    """The league is of use against cycles; a game without one needs none."""
    ladder = 1 / (1 + np.exp(-np.subtract.outer(np.arange(3.0), np.arange(3.0))))
    for match in ("self", "mix"):
        assert play(toy(match), 0, 150, game=ladder).last[-20:].max() < 0.1
    assert softmax(np.array([1000.0, 0.0])).tolist() == [1.0, 0.0]
