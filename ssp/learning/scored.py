"""A scored episode without its tokens: what an estimator is given, and with its credit a learner.

A void has no number and is not among them (law 2). Needs no torch."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ssp.base.errors import InvariantError

EPSILON = 1e-6
"""What is added to a standard deviation before it divides (verl's)."""

Credit = tuple[float, ...]
"""One number for an episode, or one for each of its turns; none where the learner computes it."""

Numbers = NDArray[np.float64]


@dataclass
class Scored:
    """One scored episode, as an estimator and a learner see it.

    `group`: the same number for the episodes that share a baseline. `expected`: how many episodes
    the group was to have, voids among them. `turns`: what each turn earned, in all `reward`; empty
    where only the sum is known. `tokens`: the policy's tokens of each turn. `baseline`: what the
    greedy answer to the same question earned, NaN where that is void, None where there is none.

    What else an estimator may compare by: `question`, `asked` (what the row asked for, as its
    number of searches), `peers` (how many of the role's episodes of the batch were asked for the
    same and have the same grader, over all stages and voids among them; 1 until all are priced),
    `source` (the document that its question is about), and `grader` (the role and version that
    graded; law 4: one a group).

    For the learner: `id`; its tokens are row `row` of the block `block`; `version_min`: of its
    oldest model token; `credit`: one number, or one a turn; empty until an estimator gave it, and
    where the learner computes it."""

    reward: float
    group: int
    expected: int = 1
    turns: tuple[float, ...] = ()
    tokens: tuple[int, ...] = (1,)
    baseline: float | None = None
    question: str = ""
    asked: str = ""
    peers: int = 1
    source: str = ""
    grader: str = ""
    id: str = ""
    block: str = ""
    row: int = 0
    version_min: int = 0
    credit: Credit = ()


def rewards_of(episodes: Sequence[Scored]) -> Numbers:
    """The reward of each episode. InvariantError: one that is not finite."""
    rewards = np.array([episode.reward for episode in episodes], dtype=np.float64)
    if not np.isfinite(rewards).all():
        rule = "a scored episode has a reward that is not finite; only voids have no value"
        raise InvariantError(rule)
    return rewards


def groups_of(episodes: Sequence[Scored]) -> NDArray[np.int64]:
    """The group of each episode."""
    return np.array([episode.group for episode in episodes], dtype=np.int64)


def numbered(labels: Sequence[Hashable]) -> NDArray[np.int64]:
    """A number for each label, from 0 by first appearance."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.int64)


def whole_batch(values: Numbers) -> NDArray[np.int64]:
    """One group for all values."""
    return np.zeros(len(values), dtype=np.int64)


def turns_of(episode: Scored) -> Sequence[float]:
    """What each turn earned: all at once where only the sum is known."""
    return episode.turns or (episode.reward,)


def standardised(rewards: Numbers, groups: NDArray[np.int64], spread: bool = True) -> Numbers:
    """(r - mean) / (sample standard deviation + 1e-6) within each group; without `spread`, r -
    mean.

    Exactly 0 in a group of equal rewards, and of one: it does not tell better from worse."""
    if not len(rewards):
        return rewards
    _, group, count = np.unique(groups, return_inverse=True, return_counts=True)
    mean = np.bincount(group, weights=rewards) / count
    centred = rewards - mean[group]
    if spread:
        squares = np.bincount(group, weights=np.square(centred))
        deviation = np.sqrt(squares / np.maximum(count - 1, 1))
        centred = centred / (deviation + EPSILON)[group]
    lowest = np.full(len(count), np.inf)
    highest = np.full(len(count), -np.inf)
    np.minimum.at(lowest, group, rewards)
    np.maximum.at(highest, group, rewards)
    # Equality, not a deviation above 0: rounding in the mean would make a tiny one out of equal
    # rewards.
    return np.where((lowest < highest)[group], centred, 0.0)


def as_credits(values: Numbers) -> list[Credit]:
    """One number an episode."""
    return [(value,) for value in values.tolist()]


def later(turns: Sequence[float]) -> list[float]:
    """What was earned from each turn on, without a discount."""
    backwards = np.array(turns[::-1], dtype=np.float64)
    return np.cumsum(backwards)[::-1].tolist()
