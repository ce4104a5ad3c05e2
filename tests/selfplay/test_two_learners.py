"""The game with scripted policies and real learners: each role learns in its own way, and logs what users watch."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from fakes import Stage, config

from ssp.learning.coldstart import ARTEFACT
from ssp.record import episodes
from ssp.selfplay.workers import learner as learner_worker
from ssp.telemetry.runlog import RunLog, read_metrics
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
    assert "kl/reference" in asked and "kl/reference" not in answered and "clip_fraction" in answered
    paid = {row["reward"] for row in stage.rows() if row["role"] == "proposer" and row["state"] == "trained"}
    assert paid <= {0.0, 0.75, 1.0} and len(paid) > 1  # 4 s (1 - s) of four attempts

    for role, mine in (("proposer", proposer), ("solver", solver)):
        alone = play(tmp_path / role, steps=1, **{f"{role}__{k}": v for k, v in mine.items()})
        assert weights(alone, role) == weights(stage, role)


def weights(stage: Stage, role: str) -> bytes:
    folder = stage.folder.path / stage.state()["folders"][role]
    assert json.loads((folder / "ssp.json").read_text())["run_step"] == 1
    return (folder / "model.safetensors").read_bytes()


OURS = {
    "game": "game/solver_searches game/tokens time/generate time/step",
    "proposer": "observation_length/mean",
    "solver": "searches reward/all reward/mean advantage/mean_abs value/mean value/loss value/clip_fraction kl/reference entropy loss "
    "clip_fraction logprob_mismatch/kl kl/coef grad_norm lr response_length/mean response_length/max response_length/cut "
    "prompt_length/mean ended/final tokens seconds tokens_per_second mfu",
}
"""Role → what stands for theirs (docs/metrics.md). `ratio_of_valid_action` is what `reject/solver_<rule>` leaves."""


@pytest.mark.covers("SR-13")
def test_three_steps_have_every_figure_that_a_user_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of three steps with a critic has each figure of Search-R1's users under our name, finite."""
    solver = {"algorithm": "gae", "loss": "ppo_clip", "kl__coef": 0.05, "kl__target": 0.1}
    sizes = {"steps": 3, "eval__every": 3, "save__every": 3, "proposer__batch": 6, "solver__batch": 4}
    stage = Stage(config(**sizes, **{f"solver__{k}": v for k, v in solver.items()}), tmp_path / "run", model=ARTEFACT)
    log = RunLog(stage.folder.path)
    monkeypatch.setattr(stage.sink, "write", log.write)
    stage.play()
    log.close()
    rows = read_metrics(stage.folder.metrics)
    for role, ours in OURS.items():
        for name in ours.split():
            told = [row.get(name) for row in rows if row["role"] == role]
            assert len(told) == 3 and all(value is not None and math.isfinite(value) for value in told), name
    assert not any(row.get("not_finite") for row in rows)
    assert any("time/eval" in row for row in rows if row["role"] == "eval")

    unfinished = sum(value for row in rows for name, value in row.items() if name.startswith("reject/solver_"))
    records = [record for file in stage.folder.episodes.glob("*.parquet") for record in episodes.read(file)]
    played = [record for record in records if record.role == "solver" and not record.id.startswith("eval")]
    assert 0 < unfinished == sum(record.stopped != "final" for record in played)
