"""Where pieces of a turn's text lie among its tokens."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

_STRIDE = 16
_BEFORE = 4
"""Tokens that are decoded again before each stride: a character has at most four, and joining them may add a space."""


def ends(ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[int]:
    """For each token, the number of characters of `decode(ids)` up to and with it. int [T], never falling.

    Decoded in strides, so that a long turn costs no square; a character that several tokens share belongs to the last.
    """
    found: list[int] = []
    base = 0
    for start in range(0, len(ids), _STRIDE):
        context = max(0, start - _BEFORE)
        known = base - len(decode(ids[context:start])) if start else 0
        for at in range(start, min(start + _STRIDE, len(ids))):
            piece = decode(ids[context : at + 1])
            base = known + len(piece)
            found.append(base - piece.endswith("\ufffd"))
    return found


def tokens(places: Sequence[int], begin: int, end: int) -> tuple[int, int]:
    """First token that reaches beyond character `begin`, and one past the last that begins before `end`."""
    first = bisect_right(places, begin)
    return first, max(first, min(bisect_left(places, end) + 1, len(places))) if end > begin else first
