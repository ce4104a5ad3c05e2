"""Layouts in which engines and learners share GPUs, as a cluster runs them that only claims to have some.

vLLM and DeepSpeed compute on this machine's CPU: who sits where, who sleeps when, and what travels is all real.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainruns import Cluster, ledger_is_sound, run

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
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
    "referee.verifier=none",
    "referee.evidence=none",
    "defaults.engine.kind=vllm",
    "defaults.engine.kv_mb=64",
    "transfer.verify=true",
]


@pytest.fixture(scope="module")
def claims() -> Iterator[Cluster]:
    """A cluster with two GPUs that are not there."""
    folder = Path(tempfile.mkdtemp(prefix="ssp-ray-", dir="/tmp"))
    cluster = Cluster(folder, gpus=2)
    try:
        yield cluster
    finally:
        cluster.end()
        shutil.rmtree(folder, ignore_errors=True)


def test_one_base_plays_both_roles(claims: Cluster, tmp_path: Path) -> None:
    settings = [
        "placement.layout=shared-base",
        "placement.nodes=1x2x80",
        "placement.engine_gpus=0.5",
        "placement.learner_gpus=0.25",
        "defaults.learner.lora.rank=4",
        "proposer.learner.kind=deepspeed",
    ]
    with run(tmp_path / "base", *SMALL, *settings, env=claims.env) as made:
        assert made.wait(800.0) == 0, made.text()
        print(made.text())
        ledger_is_sound(made)
