"""Right answers that are regular expressions, as CuratedTREC's: the texts that such a pattern matches,
so that an answer is compared with them as with any other."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

MOST = 256
"""Spellings that one pattern has at most."""

_PARSER: Any = re._parser  # type: ignore[attr-defined]  # what re itself parses with


def spellings(pattern: str) -> list[str]:
    """All texts that `pattern` matches, as DrQA reads it, in order: a space stands for any white
    space. ValueError for what is no pattern, or one that matches endlessly many texts."""
    try:
        parsed = _PARSER.parse(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    return list(dict.fromkeys(" ".join(text.split()) for text in _texts(parsed, pattern)))


def _texts(parsed: Iterable[tuple[Any, Any]], pattern: str) -> list[str]:
    texts = [""]
    for kind, value in parsed:
        ways = _ways(str(kind), value, pattern)
        if len(texts) * len(ways) > MOST:
            raise ValueError(f"{pattern!r} has more than {MOST} spellings")
        texts = [text + way for text in texts for way in ways]
    return texts


def _ways(kind: str, value: Any, pattern: str) -> list[str]:
    """The texts that one part of a pattern matches."""
    if kind == "LITERAL":
        return [chr(value)]
    if kind in ("AT", "ASSERT", "ASSERT_NOT"):
        return [""]
    if kind == "SUBPATTERN":
        return _texts(value[3], pattern)
    if kind == "BRANCH":
        ways = []
        for branch in value[1]:
            ways += _texts(branch, pattern)
        return ways
    if kind == "IN":
        return _members(value, pattern)
    if kind in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, inner = value
        once = _texts(inner, pattern)
        if once == [" "]:
            return ["", " "] if least == 0 else [" "]
        if most == 1:
            return ["", *once] if least == 0 else once
        if least == most and len(once) == 1:
            return [once[0] * least]
    raise ValueError(f"{pattern!r} has endlessly many spellings")


def _members(members: Iterable[tuple[Any, Any]], pattern: str) -> list[str]:
    """The characters of a set."""
    characters = []
    for kind, value in members:
        if str(kind) == "LITERAL":
            characters.append(chr(value))
        elif str(kind) == "RANGE" and value[1] - value[0] < MOST:
            characters += map(chr, range(value[0], value[1] + 1))
        elif str(value) == "CATEGORY_SPACE":
            characters.append(" ")
        else:
            raise ValueError(f"{pattern!r} has endlessly many spellings")
    return characters
