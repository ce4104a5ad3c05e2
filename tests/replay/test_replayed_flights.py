"""Replays of runs whose engines promise less: several versions in the middle of a turn, and vLLM."""

from __future__ import annotations

from pathlib import Path

import pytest
from replayruns import KEPT, rows
from test_forced_replay import all_same
from trainruns import ledger_is_sound, run

from ssp.views.replay.forced import BOUNDS

IN_FLIGHT = """steps=6 proposer.batch=24 solver.batch=12 proposer.algorithm=grpo proposer.loss=tis
    schedule.max_staleness.proposer=2 schedule.max_staleness.solver=2 schedule.in_flight=true
    defaults.engine.continuous=true ray.dashboard=false""".split()


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.timeout(900)
def test_tokens_that_several_versions_drew_come_out_again(tmp_path: Path) -> None:
    """A run in flight on Ray: every log-prob by its own version over the keys of those before."""
    with run(tmp_path / "run", *IN_FLIGHT, *KEPT) as made:
        assert made.wait(800.0) == 0, made.text()
        ledger_is_sound(made)
    _, largest = all_same(made.folder)
    assert largest < BOUNDS["float32"]
    several = rows(made.folder, "SELECT * FROM episodes WHERE policy_version_min < policy_version_max AND file != ''")
    assert several, "no weights changed in the middle of an episode"
    print(f"{len(several)} episodes of several versions; largest difference {largest:.1e}")
