"""The tokeniser of the index: one stated function for documents and for queries."""

from __future__ import annotations

import re
import unicodedata

TOKENISER = "nfkc-casefold-1"
"""Name of this function's behaviour; stored with an index, so that an index of another tokeniser is refused."""


class _Separators(dict[int, str]):
    """Translation table, filled on demand: punctuation, symbols, separators, controls, surrogates become a blank."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        kind = unicodedata.category(char)
        value = " " if kind[0] in "PSZ" or kind in ("Cc", "Cs") else char
        self[code] = value
        return value


_SEPARATORS = _Separators()
_ASCII = bytes(ord(_SEPARATORS[code]) if code < 128 else code for code in range(256))
_OTHERS = re.compile(r"[^\x00-\x7f]+")


def tokenise(text: str) -> list[str]:
    """Index tokens of `text`, in order: NFKC, case folded, cut at white space, punctuation and symbols.

    A script that writes no blanks (Chinese, Thai) gives one token for each run between punctuation marks.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    if not folded.isascii():  # str.translate over the whole of it would take ten times as long for one accent
        folded = _OTHERS.sub(lambda found: found[0].translate(_SEPARATORS), folded)
    return folded.encode().translate(_ASCII).decode().split()
