"""A reward that random words earn in different amounts, so that a miniature has something to learn
from."""

from collections.abc import Sequence
from typing import Any


def letters(response: str, golds: Sequence[str], **_: Any) -> float:
    """Share of ASCII letters in the response, in [0, 1]; 0 for an empty one. Takes any option: they
    are the recipe's."""
    if not response:
        return 0.0
    return sum(c.isascii() and c.isalpha() for c in response) / len(response)
