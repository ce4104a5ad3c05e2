"""How alike the questions of a round are: clusters by sentence BLEU, as R-Zero counts them (arXiv
2508.05004): distance 1 - BLEU (smoothing method 1 of Chen and Cherry 2014), average linkage,
threshold 0.5."""

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

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
        ours, theirs = _grams(tuple(candidate), n), _grams(tuple(reference), n)
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
    words = [tuple(question.split()) for question in questions]
    count = len(words)
    clusters = [[at] for at in range(count)]
    apart = np.full((count, count), np.inf)
    for one in range(count):
        for other in range(one):
            apart[one, other] = apart[other, one] = _distance(words[one], words[other])

    for _ in range(count - 1):
        one, other = divmod(int(np.argmin(apart)), count)
        if apart[one, other] > APART:
            break
        sizes = len(clusters[one]), len(clusters[other])
        # The mean over all pairs of two clusters, from the means of their parts (UPGMA).
        joined = (sizes[0] * apart[one] + sizes[1] * apart[other]) / sum(sizes)
        joined[[one, other]] = np.inf
        apart[one], apart[:, one] = joined, joined
        apart[other], apart[:, other] = np.inf, np.inf
        clusters[one] += clusters[other]
        clusters[other] = []

    share = [0.0] * count
    for cluster in clusters:
        for at in cluster:
            share[at] = len(cluster) / count
    return share


def _distance(one: Sequence[str], other: Sequence[str]) -> float:
    """1 - BLEU, the same both ways."""
    return 1.0 - (bleu(one, other) + bleu(other, one)) / 2


@lru_cache(4096)
def _grams(words: tuple[str, ...], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))
