"""How alike the questions of a round are: clusters by sentence BLEU, as R-Zero counts them (arXiv
2508.05004): distance 1 - BLEU (smoothing method 1 of Chen and Cherry 2014), average linkage,
threshold 0.5."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ORDER = 4
"""Longest n-grams that BLEU compares."""
SMALL = 0.1
"""What a count of 0 becomes (smoothing method 1)."""
APART = 0.5
"""Mean distance from which two clusters stay two."""


def bleu(texts: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """Sentence BLEU of each text, a sequence of words, against each one: [texts, texts], in
    [0, 1]."""
    lengths = np.array([len(words) for words in texts])
    logs = np.zeros((len(texts), len(texts)))
    related = _matches(texts, 1) > 0
    for n in range(1, ORDER + 1):
        matched = _matches(texts, n)
        counted = np.where(matched > 0, matched, SMALL)
        total = np.maximum(1, lengths - n + 1)
        logs += np.log(counted / total[:, None]) / ORDER
    ratio = lengths / np.maximum(1, lengths)[:, None]
    brevity = np.exp(np.minimum(0.0, 1.0 - ratio))
    return np.where(related, brevity * np.exp(logs), 0.0)


def _matches(texts: Sequence[Sequence[str]], n: int) -> NDArray[np.float64]:
    """How many n-grams two texts share, each as often as both have it: [texts, texts]."""
    having: dict[tuple[Sequence[str], int], list[int]] = defaultdict(list)
    for at, words in enumerate(texts):
        grams = Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))
        for gram, times in grams.items():
            for repeated in range(times):
                having[gram, repeated].append(at)

    matched = np.zeros((len(texts), len(texts)))
    for sharing in having.values():
        if len(sharing) > 1:
            matched[np.ix_(sharing, sharing)] += 1.0
    np.fill_diagonal(matched, [max(0, len(words) - n + 1) for words in texts])
    return matched


def shares(questions: Sequence[str]) -> list[float]:
    """Of each question the share of all questions that are in its cluster, itself included."""
    words = [tuple(question.split()) for question in questions]
    count = len(words)
    clusters = [[at] for at in range(count)]
    near = bleu(words)
    apart = 1.0 - (near + near.T) / 2
    np.fill_diagonal(apart, np.inf)

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
