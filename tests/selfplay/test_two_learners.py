"""The game with scripted policies and real learners: each role learns in its own way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes import Stage, config

from ssp.learning.coldstart import ARTEFACT
from ssp.selfplay.workers import learner as learner_worker
from tests import local


@pytest.fixture(autouse=True)
def _real_learners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "Learner", learner_worker.Learner)


def play(path: Path, **changes: Any) -> Stage:
    cfg = config(**{"proposer__batch": 6, "solver__batch": 4, "eval__every": 0, "save__every": 10, **changes})
    stage = Stage(cfg, path, model=ARTEFACT).whole()
    return stage


@pytest.mark.covers("SP-06")
@pytest.mark.parametrize(("asking", "answering"), [("grpo", "reinforce_pp"), ("reinforce", "grpo")])
def test_each_role_has_its_own_algorithm_loss_kl_and_reward(tmp_path: Path, asking: str, answering: str) -> None:
    """At once, in one step, and as if the other role had other settings."""
    proposer = {
        "algorithm": asking,
        "loss": "pg",
        "reward": "intermediate_difficulty",
        "learner__lr": 1e-3,
        "kl__coef": 0.1,
        "kl__kind": "k1",
    }
    solver = {"algorithm": answering, "loss": "ppo_clip", "reward": "em", "learner__lr": 1e-4}
    both = {f"proposer__{k}": v for k, v in proposer.items()} | {f"solver__{k}": v for k, v in solver.items()}
    stage = play(tmp_path / "both", steps=1, **both)
    (asked,), (answered,) = stage.figures("proposer"), stage.figures("solver")
    assert (asked["lr"], answered["lr"]) == (1e-3, 1e-4)
    assert "kl" in asked and "kl" not in answered and "clip_fraction" in answered
    paid = {row["reward"] for row in stage.rows() if row["role"] == "proposer" and row["state"] == "trained"}
    assert paid <= {0.0, 0.75, 1.0} and len(paid) > 1  # 4 s (1 - s) of four attempts

    for role, mine in (("proposer", proposer), ("solver", solver)):
        alone = play(tmp_path / role, steps=1, **{f"{role}__{k}": v for k, v in mine.items()})
        assert weights(alone, role) == weights(stage, role)


def weights(stage: Stage, role: str) -> bytes:
    folder = stage.folder.absolute(stage.state()["folders"][role])
    assert json.loads((folder / "ssp.json").read_text())["run_step"] == 1
    return (folder / "model.safetensors").read_bytes()
