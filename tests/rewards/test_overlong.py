"""Overlong shaping: the three pieces of DAPO's formula, and none without a buffer."""

from __future__ import annotations

import pytest

from ssp.game.rewards.score import penalty


@pytest.mark.parametrize(
    ("tokens", "value"),
    [(0, 0.0), (12_288, 0.0), (12_289, -1 / 4096), (14_336, -0.5), (16_384, -1.0), (16_385, -1.0), (99_999, -1.0)],
)
def test_it_falls_linearly_over_the_buffer(tokens, value):
    """The paper's own numbers: at most 16,384 tokens, the last 4,096 of them punished."""
    assert penalty(tokens, 16_384, 4096) == value


def test_without_a_buffer_there_is_none():
    assert penalty(99_999, 16_384, 0) == 0.0
