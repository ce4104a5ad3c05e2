"""Replays of runs whose engines promise less: several versions in the middle of a turn, and vLLM."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from replayruns import KEPT, play, rows
from test_forced_replay import all_same
from trainruns import ledger_is_sound, run

from ssp.views.replay.forced import BOUNDS

NO_VLLM = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed")
IN_FLIGHT = [
    "steps=6",
    "proposer.batch=24",
    "solver.batch=12",
    "proposer.algorithm=grpo",
    "proposer.loss=tis",
    "schedule.max_staleness.proposer=2",
    "schedule.max_staleness.solver=2",
    "schedule.in_flight=true",
    "defaults.engine.continuous=true",
    "ray.dashboard=false",
]


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


@NO_VLLM
@pytest.mark.ray
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_run_of_vllm_comes_out_again_along_its_record(tmp_path: Path) -> None:
    """vLLM in float32 on this CPU: log-probs of a plain forward, parse, verdict and reward the same."""
    engine = ["defaults.engine.kind=vllm", "defaults.engine.kv_mb=64"]
    folder = play(tmp_path / "run", "steps=1", "proposer.batch=8", "solver.batch=4", *engine)
    seen, largest = all_same(folder)
    assert seen["proposer"] == seen["proposer verdict"] == 8 and seen["solver"] >= 3 and largest < BOUNDS["float32"]
