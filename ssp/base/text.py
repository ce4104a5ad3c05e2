"""Answers as they are compared: normalisation, and equality after it."""

import re
import string
import unicodedata
from collections.abc import Sequence

from ssp.base.errors import hold

_PLAIN = str.maketrans("øØłŁđĐı‘’‚‛′`´ʻʼʽʹʾʿꞌ＇", "oOlLdDi" + 15 * "'") | str.maketrans(
    {"ß": "ss", "æ": "ae", "Æ": "ae", "œ": "oe", "Œ": "oe"}
)
_MARKS = re.compile("[\u0300-\u036f]")
"""Accents of Latin, Greek and Cyrillic letters; the marks of other scripts make other words."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(text: str) -> str:
    """`text` in the form in which answers are compared; may be empty."""
    words = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", words).split())


def plain(text: str) -> str:
    """`text` without accents, all its apostrophes alike: São Paulo is Sao Paulo, and every spelling
    of Nuku'alofa one."""
    if text.isascii():
        return text
    parted = unicodedata.normalize("NFD", text.translate(_PLAIN))
    return unicodedata.normalize("NFC", _MARKS.sub("", parted))


def same(answer: str, golds: Sequence[str]) -> bool:
    """True when `answer` equals any gold answer after normalisation. InputError for a gold that
    leaves nothing."""
    wanted = [normalise(gold) for gold in golds]
    form = "lower case, no punctuation, no a/an/the"
    rule = f"a gold answer must keep a word after normalisation ({form})"
    hold(wanted and all(wanted), rule, list(golds), "remove or correct this row of the data")
    return normalise(answer) in wanted
