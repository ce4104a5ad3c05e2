"""Where pieces of a turn's text lie among its tokens.

Owns the map from characters to tokens. Promises exact places for tokenizers whose text is the tokens' texts in a row.
Refuses to know tags.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

_STRIDE = 16


def ends(ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[int]:
    """For each token, the number of characters of `decode(ids)` up to and with it. int [T], never falling.

    Decoded in strides, so that a long turn costs no square; a character that several tokens share belongs to the last.
    """
    whole = decode(ids)
    found: list[int] = []
    start = base = 0
    for at in range(len(ids)):
        piece = decode(ids[start : at + 1])
        broken = piece.endswith("\ufffd")
        found.append(base + len(piece) - broken)
        if at + 1 - start >= _STRIDE and not broken:
            start, base = at + 1, base + len(piece)
    if found and base + len(decode(ids[start:])) != len(whole):  # tokens joined with spaces: strides lose one each
        found = [len(decode(ids[: at + 1])) for at in range(len(ids))]
    return found


def tokens(places: Sequence[int], begin: int, end: int) -> tuple[int, int]:
    """First token that reaches beyond character `begin`, and one past the last that begins before `end`."""
    first = next((at for at, place in enumerate(places) if place > begin), len(places))
    last = next((at for at, place in enumerate(places) if place >= end), len(places) - 1)
    return first, min(last + 1, len(places)) if end > begin else first
