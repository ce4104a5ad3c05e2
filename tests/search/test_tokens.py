"""The tokeniser against its one-line definition."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from ssp.search.postings import tokenise


def plainly(text):
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    kinds = [(c, unicodedata.category(c)) for c in folded]
    return "".join(" " if kind[0] in "PSZ" or kind in ("Cc", "Cs") else c for c, kind in kinds).split()


@given(
    st.text(st.characters(exclude_categories=[]), max_size=60)
    | st.text("aB é–.,'\u2028\u0301東\ud800ﬁ\t-", max_size=40)
)
def test_tokens_are_folded_and_cut_at_what_is_no_letter_mark_or_digit(text):
    assert tokenise(text) == plainly(text)
