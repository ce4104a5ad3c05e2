"""SSP's solver reward: right by exact match or by the judge, and a quarter of it for a response full of answer tags."""

from __future__ import annotations

from collections.abc import Sequence

from ssp.game.rewards.match import em

MOST_TAGS = 10
SPAM_FACTOR = 0.25


def ssp(response: str, golds: Sequence[str], judged: bool | None = None, answer: str | None = None) -> float:
    """1 when the answer matches a gold or `judged` is True, x 0.25 with more than 10 opening or closing answer tags; else 0.

    `judged`: the judge's word (None: there was none); `answer`: what was handed in, else the last `<answer>` block.
    InputError for a gold that normalises to nothing.
    """
    if not em(response, golds, answer) and not judged:
        return 0.0
    spam = max(response.count("<answer>"), response.count("</answer>")) > MOST_TAGS
    return SPAM_FACTOR if spam else 1.0
