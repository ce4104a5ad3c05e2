"""Words in any script: how the referee folds, counts and finds text, in linear time. A word is a run of letters and
digits; in scripts that are written without spaces between words (Han, kana, Thai, ...) and in Hangul, whose particles
stick to the word, each character with its marks counts as one."""

import string
import unicodedata
from collections.abc import Sequence

import regex

from ssp.game.judge import plain

ARTICLES = ("a", "an", "the")
"""What the judge leaves out when it compares answers (`ssp.game.judge`)."""

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\u30fc\p{Bopomofo}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
_CLUSTER = regex.compile(rf"[{_UNSPACED}]\p{{M}}*", regex.V1)
_LETTER = regex.compile(r"[\p{L}\p{N}]")
_RUN = rf"[[\p{{L}}\p{{N}}\p{{M}}]--[{_UNSPACED}]]+"
_WORD = regex.compile(rf"[{_UNSPACED}]\p{{M}}*|{_RUN}(?:(?<=\p{{N}})[.,](?=\p{{N}}){_RUN})*", regex.V1)
_TOKEN = regex.compile(rf"{_WORD.pattern}|\S", regex.V1)

_UNSEEN = regex.compile(r"[\p{DI}[\p{Cc}--\s]]", regex.V1)
_SEEN = regex.compile(r"\X")
_OPTIONAL = regex.compile(r"[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670]")
"""Marks that writers leave out: accents of Latin, Greek and Cyrillic, Hebrew and Arabic points."""

_PLAIN = str.maketrans({**dict.fromkeys("“”„‟«»", '"'), **dict.fromkeys("‐‑‒–—―−", "-")})
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def fold(text: str) -> str:
    """`text` in one case and width, without accents and invisible characters, quotes and dashes plain, spaces single."""
    bare = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", plain(text)).casefold())
    bare = _OPTIONAL.sub("", _UNSEEN.sub("", bare)).translate(_PLAIN)
    return " ".join(unicodedata.normalize("NFC", bare).split())


def length(text: str) -> int:
    """Characters that a reader sees, white space squeezed."""
    return len(_SEEN.findall(" ".join(_UNSEEN.sub("", text).split())))


def count(text: str) -> int:
    """Words, as a writer counts them: what stands between spaces and holds a letter; unspaced scripts by character."""
    text = fold(text)
    spaced = _CLUSTER.sub(" ", text)
    return len(_CLUSTER.findall(text)) + sum(_LETTER.search(piece) is not None for piece in spaced.split())


def words(text: str) -> list[str]:
    """The words of `text`, folded; punctuation separates, but not inside a number (2.5 is one word)."""
    return _WORD.findall(fold(text))


def tokens(text: str) -> list[str]:
    """Words and punctuation marks, folded: text up to spaces and spelling."""
    return _TOKEN.findall(fold(text))


def names(text: str, target: str) -> bool:
    """True when whole words of `text` say `target`, so that it could be read off: the judge would take them for it. So
    articles do not count, and punctuation separates words or is left out (U.S.A. is USA); neither does one plural s. A
    target without a word must stand in the text as it is; an empty one is in every text."""
    said, wanted = fold(text), fold(target)
    if not _LETTER.search(wanted):
        return wanted in said
    drop = ARTICLES if any(word not in ARTICLES for word in words(wanted)) else ()
    return any(
        within(_stems(wanted.translate(table), drop), _stems(said.translate(table), drop))
        for table in ({}, _PUNCTUATION)
    )


def within(part: Sequence[str], whole: Sequence[str]) -> bool:
    """True when `part` is not empty and stands in `whole` as a run."""
    n = len(part)
    return n > 0 and any(whole[i : i + n] == part for i in range(len(whole) - n + 1))


def _stems(text: str, drop: Sequence[str]) -> list[str]:
    stems = [word[:-1] if len(word) > 3 and word[-1] == "s" != word[-2] else word for word in words(text)]
    return [stem for stem in stems if stem not in drop]
