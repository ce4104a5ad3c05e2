"""The whole game as a cluster runs it, on this machine's CPU: vLLM plays and verifies, DeepSpeed learns."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from trainruns import ledger_is_sound, run

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.timeout(900),
    *[
        pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")
        for name in ("vllm", "deepspeed")
    ],
]
SMALL = [
    "steps=2",
    "proposer.batch=8",
    "solver.batch=4",
    "game.attempts=3",
    "eval.final_questions_per_hop=2",
    "placement.solvers=1",
    "ray.dashboard=-1",
    "defaults.engine.kind=vllm",
    "defaults.learner.kind=deepspeed",
]
"""Three processes with a vLLM of about 0.9 GB each: a proposer, a solver, and the judge, whose frozen verifier is one too."""


def test_two_steps_of_the_default_duel(tmp_path: Path) -> None:
    """Engines and learners agree on the log-probs of every trained token, before and after weights have changed."""
    with run(tmp_path / "duel", *SMALL) as made:
        assert made.wait(800.0) == 0, made.text()  # seven processes import vLLM, DeepSpeed or torch at once
        ledger_is_sound(made)
        rows = [row for role in ("proposer", "solver") for row in made.rows(role)]
        lost = made.sql("SELECT count(*) FROM episodes WHERE outcome = 'void'")
        text = made.text()
    assert made.steps() == 2 and lost == [(0,)]
    trained = [row for row in rows if "logprob_mismatch/max" in row]
    assert {row["step"] for row in trained} == {1, 2}, text
    assert max(row["logprob_mismatch/max"] for row in trained) < 1e-3
