"""Limits against the longest episode that they allow."""

from __future__ import annotations

import pytest

from ssp.base.errors import InputError
from ssp.selfplay.settings import load

LIMITS = ["prompt_tokens=10", "turn_tokens=20", "observation_tokens=30", "searches=2", "retries=4"]
LIMITS = [f"solver.limits.{limit}" for limit in LIMITS]
LONGEST = 10 + 20 * 3 + 30 * 2


def test_an_invalid_turn_counts_as_a_search() -> None:
    load("quickstart", [*LIMITS, f"solver.limits.total_tokens={LONGEST}"])
    with pytest.raises(InputError, match=f"{LONGEST - 1} against .* = {LONGEST}"):
        load("quickstart", [*LIMITS, f"solver.limits.total_tokens={LONGEST - 1}"])
