"""The judge: normalisation, exact match, and what it refuses."""

from __future__ import annotations

import pytest

from ssp.base.errors import InputError
from ssp.game.judge import normalise, same


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The Paris.", "paris"),
        ("  A   cat, an owl; THE theatre ", "cat owl theatre"),
        ("U.S.A", "usa"),
        ("the", ""),
        ("the-end", "theend"),
        ("caf\u00e9 \u00ab Le Th\u00e9 \u00bb", "caf\u00e9 \u00ab le th\u00e9 \u00bb"),
        ("a.", ""),
        ("line\none\ttwo", "line one two"),
    ],
)
def test_normalise_follows_the_written_rule(text: str, wanted: str) -> None:
    assert normalise(text) == wanted
    assert normalise(normalise(text)) == normalise(text)


def test_same_takes_any_gold() -> None:
    assert same("The Beatles!", ["stones", "beatles"])
    assert not same("beatle", ["stones", "beatles"])


@pytest.mark.parametrize("golds", [[], ["the"], ["..."], [""], ["pota", "a"]])
def test_a_gold_without_a_word_is_refused(golds: list[str]) -> None:
    with pytest.raises(InputError, match="gold answer"):
        same("pota", golds)
