"""Near-duplicates among questions.

The features of a question are its words and the pairs of neighbours, folded as the referee does.
Two questions are near-duplicates when their features are the same, or when they have the same
answer and the Jaccard similarity of their features is at least `NEAR`. A group is what such pairs
connect; the search is exact."""

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from itertools import pairwise

from ssp.base.words import words

NEAR = 0.7
"""Least similarity: of 15 words one was changed, or a word was added or left out of 8."""


def features(question: str) -> frozenset[str]:
    """The words of a question, and its pairs of neighbours."""
    said = words(question)
    return frozenset(said + [f"{left} {right}" for left, right in pairwise(said)])


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard: what both have, as a share of what either has; 0 for two empty sets."""
    return len(one & other) / len(one | other) if one or other else 0.0


def group(questions: Sequence[str], answers: Sequence[str]) -> list[int]:
    """For each question the place of the first question in its group."""
    sets = [features(question) for question in questions]
    first = list(range(len(sets)))
    alike: dict[frozenset[str], int] = {}
    distinct: dict[tuple[frozenset[str], str], int] = {}
    for place, (own, answer) in enumerate(zip(sets, answers, strict=True)):
        if own:
            first[place] = alike.setdefault(own, place)
            distinct.setdefault((own, folded(answer)), place)
    # answer and feature → earlier places
    having: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for (own, answer), place in distinct.items():
        common: Counter[int] = Counter()
        for feature in own:
            common.update(having[answer, feature])
        for earlier, shared in common.items():
            either = len(own) + len(sets[earlier]) - shared
            if shared / either >= NEAR:
                mine, theirs = _root(first, place), _root(first, earlier)
                first[max(mine, theirs)] = min(mine, theirs)
        for feature in own:
            having[answer, feature].append(place)
    return [_root(first, place) for place in range(len(sets))]


class Recent:
    """The newest questions of a stream: as many as `number`, however fast they come."""

    def __init__(self, number: int) -> None:
        self._last: deque[tuple[frozenset[str], str]] = deque(maxlen=number)

    def near(self, question: str, answer: str) -> bool:
        """Whether one of the `number` questions before this one is a near-duplicate; remembers the
        question."""
        own, asked = features(question), folded(answer)
        duplicate = bool(own) and any(own == other for other, _ in self._last)
        for other, theirs in self._last:
            if asked == theirs and not duplicate:
                duplicate = similarity(own, other) >= NEAR
        self._last.append((own, asked))
        return duplicate


def folded(answer: str) -> str:
    """The words of an answer; the same for two answers that say the same."""
    return " ".join(words(answer))


def _root(first: list[int], place: int) -> int:
    """The first place of the group that `place` is in; shortens the way there."""
    while first[place] != place:
        first[place] = first[first[place]]
        place = first[place]
    return place
