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


def test_continuous_has_no_lanes() -> None:
    with pytest.raises(InputError, match="solver.engine.lanes belongs to lock-step"):
        load("quickstart", [*ASYNC, "solver.engine.continuous=true", "solver.engine.lanes=2"])


def test_prefix_cache_is_a_setting_of_torch_too() -> None:
    assert not load("quickstart", ["defaults.engine.prefix_cache=false"]).solver.engine.prefix_cache
    with pytest.raises(InputError, match="prefix_cache belongs to"):
        load(
            "quickstart",
            ["solver.engine.kind=endpoint", "solver.engine.url=http://h/v1", "solver.engine.prefix_cache=false"],
        )
