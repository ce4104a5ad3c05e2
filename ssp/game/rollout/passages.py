"""Text beside its tokens: passages made to fit, and where pieces of a turn lie among its tokens."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ssp.base.episode import Document

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

T = TypeVar("T")
Results = list[list[Document]]
"""The passages of each query."""


def fit(
    results: Sequence[Sequence[Document]],
    most: int,
    tokenizer: PreTrainedTokenizerBase,
    show: Callable[[Results], T],
    size: Callable[[T], int],
) -> T:
    """What `show` makes of as much of `results` as has at most `most` tokens (`size` counts them);
    of nothing if need be. Passages go from the end of the longest result. What is left, one a
    query, is cut until it fits."""
    kept = [list(documents) for documents in results]
    shown = show(kept)
    while size(shown) > most and max(map(len, kept), default=0) > 1:
        max(kept, key=len).pop()
        shown = show(kept)
    if size(shown) <= most or not any(kept):
        return shown
    borders = {}
    for document in (document for documents in kept for document in documents):
        spans = tokenizer(document.contents, add_special_tokens=False, return_offsets_mapping=True)[
            "offset_mapping"
        ]
        borders[document] = [begin for begin, _ in spans[: most + 1]]

    def cut(tokens: int) -> T:
        return show(
            [
                [part for document in documents for part in _cut(document, borders, tokens)]
                for documents in kept
            ]
        )

    fitting = bisect_right(range(most + 1), most, key=lambda tokens: size(cut(tokens)))
    return cut(max(0, fitting - 1))


def _cut(document: Document, borders: dict[Document, list[int]], tokens: int) -> list[Document]:
    """The document up to its border `tokens`, whole where it has fewer; none where its title alone
    would be left."""
    ends = borders[document]
    cut = (
        document
        if tokens >= len(ends)
        else replace(document, contents=document.contents[: ends[tokens]])
    )
    return [cut] if (cut.text if document.text.strip() else cut.contents).strip() else []


_STRIDE = 16
_BEFORE = 4
"""Tokens that are decoded again before each stride: a character has at most four, and joining them
may add a space."""


def ends(ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[int]:
    """For each token, the number of characters of `decode(ids)` up to and with it. int [T], never
    falling. Decoded in strides, so that a long turn costs no square; a character that several
    tokens share belongs to the last."""
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
    """First token that reaches beyond character `begin`, and one past the last that begins before
    `end`."""
    first = bisect_right(places, begin)
    return first, max(
        first, min(bisect_left(places, end) + 1, len(places))
    ) if end > begin else first
