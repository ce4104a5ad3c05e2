"""Answers as they are compared: normalisation, and equality after it.

Owns Search-R1's `qa_em` rule: lower-case, delete ASCII punctuation, a/an/the become spaces, collapse white space.
Promises that a gold answer which normalises to nothing is refused.
Refuses to know who else may be asked.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from ssp.errors import InputError

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(text: str) -> str:
    """`text` in the form in which answers are compared; may be empty."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def same(answer: str, golds: Sequence[str]) -> bool:
    """True when `answer` equals any gold answer after normalisation. InputError for a gold that leaves nothing."""
    wanted = [normalise(gold) for gold in golds]
    if not wanted or not all(wanted):
        raise InputError(
            "a gold answer must keep a word after normalisation (lower case, no punctuation, no a/an/the)",
            list(golds),
            "remove or correct this row of the data",
        )
    return normalise(answer) in wanted
