"""Clusters of a round's questions, beside sentence BLEU as its definition has it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from ssp.game.games import similar


def bleu(candidate: Sequence[str], reference: Sequence[str]) -> float:
    """Sentence BLEU of two texts, smoothed by method 1 of Chen and Cherry 2014."""
    logs = 0.0
    for n in range(1, 5):
        ours, theirs = (
            Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1)) for words in (candidate, reference)
        )
        matched = sum((ours & theirs).values())
        if n == 1 and matched == 0:
            return 0.0
        logs += math.log((matched or 0.1) / max(1, sum(ours.values()))) / 4
    short = len(candidate) < len(reference)
    brevity = math.exp(1 - len(reference) / max(1, len(candidate))) if short else 1.0
    return brevity * math.exp(logs)


@pytest.mark.covers("GA-02")
def test_all_pairs_at_once_are_the_pairs_one_by_one() -> None:
    """Words that repeat, texts of no word and of one, and texts that are the same."""
    rng = np.random.default_rng(3)
    texts = [[], ["a"], ["a"] * 6, ["a", "b"] * 3]
    for length in rng.integers(0, 14, 40):
        texts.append([f"w{word}" for word in rng.zipf(1.6, length) % 9])
    texts += texts[10:16]
    made = similar.bleu(texts)
    for row, candidate in enumerate(texts):
        for column, reference in enumerate(texts):
            assert made[row, column] == pytest.approx(bleu(candidate, reference), abs=1e-12)
