"""Near-duplicates: which questions say nearly the same.

Owns the measure: two questions are near-duplicates when the Jaccard similarity of their features (words, and pairs of
neighbouring words, folded as the referee does) is at least `NEAR`; a group is what such pairs connect. Promises the
exact answer, whatever the order of the questions, and that no pair is compared that cannot reach `NEAR` (two sets that do
share one of their rarest features). Refuses to know meaning: a paraphrase in other words is no near-duplicate.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

from ssp.referee.words import words

NEAR = 0.7
"""Least similarity: of 15 words one was changed, or a word was added or left out of 8."""


def features(question: str) -> frozenset[str]:
    """Words, and pairs of neighbours, of a question."""
    said = words(question)
    return frozenset([*said, *(f"{left} {right}" for left, right in zip(said, said[1:], strict=False))])


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard: what both have, as a share of what either has; 0 for two empty sets."""
    return len(one & other) / len(one | other) if one or other else 0.0


def group(questions: Sequence[str]) -> list[int]:
    """For each question the place of the first one of its group (its own place when it is the first or alone)."""
    sets = [features(question) for question in questions]
    common = Counter(feature for found in sets for feature in found)
    first = list(range(len(sets)))
    seen: defaultdict[str, list[int]] = defaultdict(list)
    for place in sorted(range(len(sets)), key=lambda place: (len(sets[place]), place)):
        own = sets[place]
        rare = sorted(own, key=lambda feature: (common[feature], feature))
        # Who shares none of these shares fewer than NEAR of them all, in either direction (Bayardo's prefix filter).
        prefix = rare[: len(rare) - math.ceil(NEAR * len(rare)) + 1]
        near = {other for feature in prefix for other in seen[feature] if len(sets[other]) >= NEAR * len(own)}
        for other in near:
            if _root(first, place) != _root(first, other) and similarity(own, sets[other]) >= NEAR:
                ends = sorted((_root(first, place), _root(first, other)))
                first[ends[1]] = ends[0]
        for feature in prefix:
            seen[feature].append(place)
    return [_root(first, place) for place in range(len(sets))]


def _root(first: list[int], place: int) -> int:
    while first[place] != place:
        first[place] = first[first[place]]
        place = first[place]
    return place
