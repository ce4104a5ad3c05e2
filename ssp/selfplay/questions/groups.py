"""Near-duplicates: questions whose features (words, and pairs of neighbours, folded as the referee
does) are the same, or that ask for the same answer with features alike by Jaccard. A group is what
such pairs connect; the search is exact."""

from collections import Counter, defaultdict, deque
from collections.abc import Sequence

from ssp.base.words import words

NEAR = 0.7
"""Least similarity: of 15 words one was changed, or a word was added or left out of 8."""


def features(question: str) -> frozenset[str]:
    """Words, and pairs of neighbours, of a question."""
    said = words(question)
    return frozenset(
        [*said, *(f"{left} {right}" for left, right in zip(said, said[1:], strict=False))]
    )


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard: what both have, as a share of what either has; 0 for two empty sets."""
    return len(one & other) / len(one | other) if one or other else 0.0


def group(questions: Sequence[str], answers: Sequence[str]) -> list[int]:
    """For each question the place of the first one of its group (its own place when it is the first
    or alone)."""
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
        common = Counter(earlier for feature in own for earlier in having[answer, feature])
        for earlier, shared in common.items():
            if shared / (len(own) + len(sets[earlier]) - shared) >= NEAR:
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
        """Whether one of the `number` questions before this one is a near-duplicate; the question
        is remembered."""
        own, asked = features(question), folded(answer)
        found = any(
            similarity(own, other) >= (NEAR if asked == theirs else 1)
            for other, theirs in self._last
        )
        self._last.append((own, asked))
        return found


def folded(answer: str) -> str:
    """The words of an answer: what two that are the same have in common."""
    return " ".join(words(answer))


def _root(first: list[int], place: int) -> int:
    while first[place] != place:
        first[place] = first[first[place]]
        place = first[place]
    return place
