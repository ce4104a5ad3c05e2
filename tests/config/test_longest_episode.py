"""Limits against the longest episode that they allow."""

from __future__ import annotations

import pytest

from ssp.base.errors import InputError
from ssp.selfplay.settings import load

LIMITS = ["prompt_tokens=10", "turn_tokens=20", "observation_tokens=30", "searches=2", "retries=4"]
LIMITS = [f"solver.limits.{limit}" for limit in LIMITS]
LONGEST = 10 + 20 * 3 + 30 * 2


def test_an_invalid_turn_counts_as_a_search() -> None:
    """So retries make no episode longer: a penalty that begins at the longest one is never reached."""
    load("quickstart", [*LIMITS, f"solver.limits.total_tokens={LONGEST}"])
    with pytest.raises(InputError, match=f"{LONGEST - 1} against .* = {LONGEST}"):
        load("quickstart", [*LIMITS, f"solver.limits.total_tokens={LONGEST - 1}"])
    overlong = [f"solver.limits.total_tokens={LONGEST + 20}", "solver.limits.overlong=20"]
    with pytest.raises(InputError, match=f"no episode has more than {LONGEST}"):
        load("quickstart", [*LIMITS, *overlong])
    load("quickstart", [*LIMITS, overlong[0], "solver.limits.overlong=21"])
