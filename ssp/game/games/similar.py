"""How alike the questions of a round are: clusters by sentence BLEU, as R-Zero counts them (arXiv
2508.05004): distance 1 - BLEU (smoothing method 1 of Chen and Cherry 2014), average linkage,
threshold 0.5."""

import math
from collections import Counter
from collections.abc import Sequence

ORDER = 4
"""Longest n-grams that BLEU compares."""
SMALL = 0.1
"""What a count of 0 becomes (smoothing method 1)."""
APART = 0.5
"""Mean distance from which two clusters stay two."""


def bleu(candidate: Sequence[str], reference: Sequence[str]) -> float:
    """Sentence BLEU of two texts as words, in [0, 1]."""
    logs = 0.0
    for n in range(1, ORDER + 1):
        ours, theirs = _grams(candidate, n), _grams(reference, n)
        total = max(1, sum(ours.values()))
        matched = sum((ours & theirs).values())
        if n == 1 and matched == 0:
            return 0.0
        logs += math.log((matched or SMALL) / total) / ORDER
    shorter = len(candidate) < len(reference)
    brevity = math.exp(1 - len(reference) / max(1, len(candidate))) if shorter else 1.0
    return brevity * math.exp(logs)


def shares(questions: Sequence[str]) -> list[float]:
    """Of each question the share of all questions that are in its cluster, itself included."""
    words = [question.split() for question in questions]
    clusters = [[at] for at in range(len(words))]
    distances = [[_distance(one, other) for other in words] for one in words]
    while len(clusters) > 1:
        apart, first, second = min(
            (_linkage(distances, clusters[i], clusters[j]), i, j)
            for i in range(len(clusters))
            for j in range(i + 1, len(clusters))
        )
        if apart > APART:
            break
        clusters[first] += clusters.pop(second)
    share = [0.0] * len(words)
    for cluster in clusters:
        for at in cluster:
            share[at] = len(cluster) / len(words)
    return share


def _distance(one: Sequence[str], other: Sequence[str]) -> float:
    """1 - BLEU, the same both ways."""
    return 1.0 - (bleu(one, other) + bleu(other, one)) / 2


def _linkage(distances: Sequence[Sequence[float]], one: list[int], other: list[int]) -> float:
    """The mean distance between two clusters."""
    between = [distances[i][j] for i in one for j in other]
    return sum(between) / len(between)


def _grams(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))
