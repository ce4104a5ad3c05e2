"""Who is met next: the newest opponent, or a frozen one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ssp.base.seeds import generator

KINDS = ("self", "past", "prioritised", "best")
"""Pure kinds; `mix` draws one of them by its share. All but `self` need a member, and are `self` while there is none."""


def pfsp(chances: Sequence[float], power: float = 2.0) -> np.ndarray:
    """Probabilities of meeting opponents that one beats with `chances` x (AlphaStar, Vinyals et al. 2019): proportional to
    (1 - x) ** power, so those one loses to; even where one beats all for certain."""
    lost = 1 - np.asarray(chances, dtype=float)
    most = float(lost.max())
    found = (
        (lost / most) ** power if most > 0 else np.ones(len(lost))
    )  # of the most: a high power must not end at 0 / 0
    return found / found.sum()


def weights(
    shares: Mapping[str, float],
    chances: Sequence[float],
    ratings: Sequence[float],
    power: float = 2.0,
) -> np.ndarray:
    """Probabilities of the newest version (first) and of each member, in order.

    `shares`: kind → share of the draws. `chances`: of beating each member. `ratings`: each member's strength.
    """
    count, whole = len(chances), sum(shares.values())
    found = np.zeros(1 + count)
    for kind, share in shares.items():
        if kind == "self" or not count:
            found[0] += share / whole
        elif kind == "past":
            found[1:] += share / whole / count
        elif kind == "prioritised":
            found[1:] += share / whole * pfsp(chances, power)
        else:  # of equals the newest
            found[count - int(np.argmax(np.asarray(ratings)[::-1]))] += share / whole
    return found


def draw(members: Sequence[int], probabilities: np.ndarray, seed: int, *labels: str | int) -> int | None:
    """The opponent of one role in (a part of) one round, which `labels` name: a member, or None for the newest."""
    at = int(generator(seed, "league", *labels).choice(1 + len(members), p=probabilities))
    return None if at == 0 else members[at - 1]
