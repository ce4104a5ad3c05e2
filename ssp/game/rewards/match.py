"""Rewards that compare the answer with the gold answers: exact match, substring, token F1.

Owns three formulas, all after Search-R1's normalisation and each the best over the golds: `em` and `sub_em` are
Search-R1's (seeds SR-30, SR-31), `f1` is ReSearch's. Promises that a gold which normalises to nothing is refused, never
matched (seeds D16). Refuses to look at the prompt or at the form of the response.

Each takes the answer that was handed in as `answer` where the caller knows it (the game does, whatever the protocol's
tags are), and else reads the last `<answer>` block of the response.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ssp.game.judge import normalise, same
from ssp.game.rewards.text import handed_in

_WHOLE = ("yes", "no", "noanswer")
"""Answers of which a part is worth nothing."""


def em(response: str, golds: Sequence[str], answer: str | None = None) -> float:
    """1 when the answer equals any gold, else 0. InputError for a gold that normalises to nothing."""
    return float(same(handed_in(response) if answer is None else answer, golds))


def sub_em(response: str, golds: Sequence[str], answer: str | None = None) -> float:
    """1 when any gold stands somewhere in the answer, else 0. InputError as for `em`."""
    found = normalise(handed_in(response) if answer is None else answer)
    return float(any(gold in found for gold in wanted(golds)))


def f1(response: str, golds: Sequence[str], answer: str | None = None) -> float:
    """Token F1 of the answer, the best over the golds, in [0, 1]. InputError as for `em`."""
    return token_f1(handed_in(response) if answer is None else answer, golds)


def token_f1(answer: str, golds: Sequence[str]) -> float:
    """F1 of the words of `answer` and of a gold, the best over the golds; yes, no and noanswer match whole or not."""
    found = normalise(answer)
    return max(_f1(found, gold) for gold in wanted(golds))


def wanted(golds: Sequence[str]) -> list[str]:
    """The golds, normalised. InputError for none at all, and for one that normalises to nothing."""
    same("", golds)
    return [normalise(gold) for gold in golds]


def _f1(found: str, gold: str) -> float:
    if found != gold and (found in _WHOLE or gold in _WHOLE):
        return 0.0
    ours, theirs = Counter(found.split()), Counter(gold.split())
    both = (ours & theirs).total()
    if both == 0:
        return 0.0
    precision, recall = both / ours.total(), both / theirs.total()
    return 2 * precision * recall / (precision + recall)
