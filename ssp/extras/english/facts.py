"""A fact, the phrasings of `english.yaml`, and how text is cut into short passages."""

import functools
import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

WORDS = 50
"""A passage has at most so many words, or one sentence."""

_TAG, _BREAK = re.compile(r"<[^>]+>"), re.compile(r"<br\s*/?>|</p>")
_SENTENCE = re.compile(r"(?<=[.;!?])\s+(?=[A-Z0-9(])")


@dataclass(frozen=True)
class Fact:
    """`object` is the answer to `relation` of `subject`. The document with the id `passage` says so
    in the words `quote`."""

    subject: str
    relation: str
    object: str
    passage: str
    quote: str


@functools.cache
def grammar() -> dict[str, Any]:
    """What `english.yaml` says of sections, names and relations."""
    path = Path(__file__).with_name("english.yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@functools.cache
def heard() -> dict[str, Any]:
    """What `heard.yaml` says of phrasings and facts that the oracle alone knows. It is not part of
    `grammar`, by which the world's files are told apart."""
    path = Path(__file__).with_name("heard.yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def relations() -> dict[str, dict[str, Any]]:
    """Each relation, by name: where the book states it, and how it is asked for."""
    return grammar()["relations"]


def clean(text: str) -> str:
    """Text without markup, spaces single."""
    spaced = _BREAK.sub(" ", html.unescape(text))
    return " ".join(_TAG.sub("", spaced).split())


def paragraphs(text: str) -> Iterator[str]:
    """`text` in parts of at most WORDS words, cut where a sentence or clause ends."""
    part: list[str] = []
    length = 0
    for piece in _SENTENCE.split(text) if text else ():
        words = len(piece.split())
        if part and length + words > WORDS:
            yield " ".join(part)
            part, length = [], 0
        part.append(piece)
        length += words
    if part:
        yield " ".join(part)
