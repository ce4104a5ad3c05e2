"""Near-duplicates: which questions say nearly the same.

Owns the measure: two questions are near-duplicates when the Jaccard similarity of their features (words, and pairs of
neighbouring words, folded as the referee does) is at least `NEAR`; a group is what such pairs connect. Promises the
exact answer, whatever the order of the questions, and that no pair is compared that cannot reach `NEAR` (two sets that do
share one of their rarest features). Of a stream, `Recent` says which questions have a near-duplicate not long before them.
Refuses to know meaning: a paraphrase in other words is no near-duplicate.
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
        prefix = _rarest(own, common)
        near = {other for feature in prefix for other in seen[feature] if len(sets[other]) >= NEAR * len(own)}
        for other in near:
            if _root(first, place) != _root(first, other) and similarity(own, sets[other]) >= NEAR:
                ends = sorted((_root(first, place), _root(first, other)))
                first[ends[1]] = ends[0]
        for feature in prefix:
            seen[feature].append(place)
    return [_root(first, place) for place in range(len(sets))]


class Recent:
    """The questions of the last `window` rounds. Rounds come in order."""

    def __init__(self, window: int) -> None:
        self._window, self._round = window, 0
        self._last: dict[frozenset[str], int] = {}  # distinct features → the last round that had them
        self._common: Counter[str] = Counter()
        self._seen: defaultdict[str, list[frozenset[str]]] = defaultdict(list)
        self._room = 0

    def near(self, round_: int, question: str) -> bool:
        """Whether a question of the `window` rounds before this one, or an earlier one of it, is a near-duplicate; the
        question is remembered."""
        own, self._round = features(question), round_
        if not own:
            return False
        if own in self._last:
            fresh, self._last[own] = self._fresh(own), round_
            return fresh or self._has_near(own)
        found = self._has_near(own)
        self._last[own] = round_
        if len(self._last) > self._room:
            self._build()
        else:
            self._index(own)
        return found

    def _fresh(self, other: frozenset[str]) -> bool:
        return self._last.get(other, -1) >= self._round - self._window

    def _has_near(self, own: frozenset[str]) -> bool:
        tried = {other for feature in _rarest(own, self._common) for other in self._seen.get(feature, ())}
        return any(other != own and self._fresh(other) and similarity(own, other) >= NEAR for other in tried)

    def _build(self) -> None:
        """Forget what is too old, and count anew which features are rare: any one order of the features gives the same
        answers, so the counts stay until the questions have doubled."""
        self._last = {own: last for own, last in self._last.items() if last >= self._round - self._window}
        self._common = Counter(feature for own in self._last for feature in own)
        self._seen.clear()
        self._room = 2 * len(self._last) + 64
        for own in self._last:
            self._index(own)

    def _index(self, own: frozenset[str]) -> None:
        for feature in _rarest(own, self._common):
            self._seen[feature].append(own)


def _rarest(own: frozenset[str], common: Counter[str]) -> list[str]:
    """Who shares none of these shares fewer than `NEAR` of them all, in either direction (Bayardo's prefix filter)."""
    rare = sorted(own, key=lambda feature: (common[feature], feature))
    return rare[: len(rare) - math.ceil(NEAR * len(rare)) + 1]


def _root(first: list[int], place: int) -> int:
    while first[place] != place:
        first[place] = first[first[place]]
        place = first[place]
    return place
