"""On a game that only goes round, pure self-play goes round and the league comes to rest near the equilibrium.

Distances are of both sides together: 0 at the equilibrium, 1 where each loses every game to its best answer.
"""

from __future__ import annotations

import pytest
from league_toys import play, toy

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
