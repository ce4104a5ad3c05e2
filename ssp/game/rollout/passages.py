"""Text and its tokens: passages that are cut to fit, and the tokens of a piece of text."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
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
    """What `show` makes of as much of `results` as has at most `most` tokens, which `size` counts;
    of nothing if need be. First passages go, from the end of the longest result. Then those that
    are left, one a query, are cut."""
    kept = [list(documents) for documents in results]
    shown = show(kept)
    while size(shown) > most and max(map(len, kept), default=0) > 1:
        max(kept, key=len).pop()
        shown = show(kept)
    if size(shown) <= most or not any(kept):
        return shown
    borders: dict[Document, list[int]] = {}
    for document in chain.from_iterable(kept):
        encoded = tokenizer(
            document.contents, add_special_tokens=False, return_offsets_mapping=True
        )
        spans = encoded["offset_mapping"][: most + 1]
        borders[document] = [begin for begin, _ in spans]

    def cut(tokens: int) -> T:
        trial: Results = []
        for documents in kept:
            parts = [_cut(document, borders[document], tokens) for document in documents]
            trial.append(list(chain.from_iterable(parts)))
        return show(trial)

    fitting = bisect_right(range(most + 1), most, key=lambda tokens: size(cut(tokens)))
    return cut(max(0, fitting - 1))


def _cut(document: Document, borders: list[int], tokens: int) -> list[Document]:
    """The document up to its border `tokens`, whole where it has fewer borders; none where only its
    title would be left."""
    cut = document
    if tokens < len(borders):
        cut = replace(document, contents=document.contents[: borders[tokens]])
    left = cut.text if document.text.strip() else cut.contents
    return [cut] if left.strip() else []


_STRIDE = 16
_BEFORE = 4
"""Tokens that are decoded again before each stride: a character has at most four, and joining them
may add a space."""


def ends(ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[int]:
    """For each token, the number of characters of `decode(ids)` up to its end. int [T], never
    falling. A character that several tokens share belongs to the last. They are decoded in strides,
    so that the cost of a long turn is not quadratic."""
    lengths = []
    length = 0
    for start in range(0, len(ids), _STRIDE):
        context = max(0, start - _BEFORE)
        before = length - len(decode(ids[context:start])) if start else 0
        for at in range(start, min(start + _STRIDE, len(ids))):
            piece = decode(ids[context : at + 1])
            length = before + len(piece)
            lengths.append(length - piece.endswith("\ufffd"))
    return lengths


def tokens(places: Sequence[int], begin: int, end: int) -> tuple[int, int]:
    """The tokens of the characters [`begin`, `end`), by the `ends` of all: the first that reaches
    beyond `begin`, and one past the last that begins before `end`."""
    first = bisect_right(places, begin)
    if end <= begin:
        return first, first
    last = min(bisect_left(places, end) + 1, len(places))
    return first, max(first, last)
