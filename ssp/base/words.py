"""Words in any script: the one rule by which BM25, `recall@k` and the referee cut text, in linear
time.

A word is a run of letters, digits and their marks, whatever punctuation stands beside it. In
scripts that are written without spaces between words (Han, kana, Thai, ...) each character with its
marks is a word. So it is in Hangul, where particles stick to the word."""

import string
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import regex

from ssp.base.text import plain

ARTICLES = ("a", "an", "the")
"""What the judge leaves out when it compares answers (`ssp.game.judge`)."""

_UNSPACED = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\u30fc\p{Bopomofo}\p{Hangul}\p{Yi}\p{Tibetan}\p{Javanese}\p{Balinese}"
    r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tai_Le}\p{New_Tai_Lue}\p{Tai_Tham}\p{Tai_Viet}"
)
LETTER = regex.compile(r"[\p{L}\p{N}\p{M}]")
"""What words are made of: letters, digits and their marks."""
CHARACTER = regex.compile(rf"[{_UNSPACED}&&{LETTER.pattern}]\p{{M}}*", regex.V1)
"""A character that is a word by itself, with its marks."""
_SPOKEN = regex.compile(r"[\p{L}\p{N}]")
# what is most of a text comes first: twice as fast
_RUN = rf"[[a-z0-9][{LETTER.pattern}--[{_UNSPACED}]]]+"
_NUMBERS = rf"(?:(?<=\p{{N}})[.,](?=\p{{N}}){_RUN})*"
_WORD = regex.compile(f"{_RUN}{_NUMBERS}|{CHARACTER.pattern}", regex.V1)
_TOKEN = regex.compile(rf"{_WORD.pattern}|\S", regex.V1)

UNSEEN = regex.compile(r"[\p{DI}[\p{Cc}--\s]]", regex.V1)
"""A character that a reader does not see: a soft hyphen, a joiner, a control character."""
_SEEN = regex.compile(r"\X")
_OPTIONAL = regex.compile(
    r"[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670]"
)
"""Marks that writers leave out: accents of Latin, Greek and Cyrillic, Hebrew and Arabic points."""

_PLAIN = str.maketrans({**dict.fromkeys("“”„‟«»", '"'), **dict.fromkeys("‐‑‒–—―−", "-")})
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_PLURAL = regex.compile(r"(?<=..[^s])s\Z", regex.DOTALL)
"""The s at the end of a word of four characters or more that does not end in ss."""


def fold(text: str) -> str:
    """`text` in one case and width, without accents and invisible characters, quotes and dashes
    plain, spaces single."""
    parted = unicodedata.normalize("NFKD", plain(text))
    folded = unicodedata.normalize("NFKD", parted.casefold())
    bare = _OPTIONAL.sub("", UNSEEN.sub("", folded)).translate(_PLAIN)
    return " ".join(unicodedata.normalize("NFC", bare).split())


def length(text: str) -> int:
    """Characters that a reader sees, white space squeezed."""
    squeezed = " ".join(UNSEEN.sub("", text).split())
    return len(_SEEN.findall(squeezed))


def count(text: str) -> int:
    """Words, as a writer counts them: what stands between spaces and holds a letter; unspaced
    scripts by character."""
    spaced, characters = CHARACTER.subn(" ", fold(text))
    pieces = [piece for piece in spaced.split() if _SPOKEN.search(piece)]
    return characters + len(pieces)


def words(text: str) -> list[str]:
    """The words of `text`, folded; punctuation separates, but not inside a number (2.5 is one
    word)."""
    return _WORD.findall(fold(text))


def tokens(text: str) -> list[str]:
    """Words and punctuation marks, folded: text up to spaces and spelling."""
    return _TOKEN.findall(fold(text))


def says(text: str, answer: str) -> bool:
    """True when whole words of `text` say `answer`, so that it could be read off: the judge would
    take them for it.

    Articles do not count. Punctuation separates words or is left out (U.S.A. is USA). An answer
    without a word must stand in the text as it is; an empty one is in every text."""
    return _said(text, answer, False)


def names(text: str, target: str) -> bool:
    """As `says`, and one plural s does not count either: a question about cars names the target
    car."""
    return _said(text, target, True)


def _said(text: str, answer: str, plural: bool) -> bool:
    wanted = fold(answer)
    if not _SPOKEN.search(wanted):
        return wanted in fold(text)
    only_articles = all(word in ARTICLES for word in words(answer))
    drop = () if only_articles else ARTICLES
    forms = zip(_forms(answer, drop, plural), _forms(text, drop, plural), strict=True)
    return any(part.strip() and part in whole for part, whole in forms)


@lru_cache(1024)
def _forms(text: str, drop: Sequence[str], plural: bool) -> list[str]:
    """The words of `text`, a blank on both sides of each: where punctuation separates them, and
    where it is left out."""
    folded, forms = fold(text), []
    for table in ({}, _PUNCTUATION):
        said = _WORD.findall(folded.translate(table))
        if plural:
            said = [_PLURAL.sub("", word) for word in said]
        kept = [word for word in said if word not in drop]
        forms.append(f" {' '.join(kept)} ")
    return forms


def within(part: Sequence[str], whole: Sequence[str]) -> bool:
    """True when `part` is not empty and stands in `whole` as a run."""
    n = len(part)
    return n > 0 and any(whole[i : i + n] == part for i in range(len(whole) - n + 1))
