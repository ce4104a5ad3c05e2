"""Free-running embedded engines: where they are allowed."""

from __future__ import annotations

import pytest

from ssp.base.errors import InputError
from ssp.selfplay.settings import load

ASYNC = ["schedule.preset=one-step-off", "proposer.loss=tis"]


def test_continuous_needs_a_bound_above_0() -> None:
    with pytest.raises(InputError, match="solver.engine.continuous needs a staleness bound above 0"):
        load("quickstart", ["solver.engine.continuous=true"])
    assert load("quickstart", [*ASYNC, "defaults.engine.continuous=true"]).proposer.engine.continuous
