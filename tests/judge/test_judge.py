"""The judge: normalisation, exact match, and what it refuses."""

from __future__ import annotations

import pytest

from ssp.game.judge import normalise


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
