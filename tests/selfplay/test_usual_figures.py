"""The figures that users of Search-R1 watch: a run of three steps with a critic has each of them under our name, finite."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from fakes import Stage, config

from ssp.learning.coldstart.store import ARTEFACT
from ssp.record import episodes
from ssp.selfplay.workers import learner as learner_worker
from ssp.telemetry.runlog import RunLog, read_metrics
from tests import local

OURS = {
    "env/number_of_actions": ("game", "game/solver_searches"),
    "env/number_of_valid_search": ("solver", "searches"),
    "state_tokens/total": ("game", "game/tokens"),
    "critic/score": ("solver", "reward/all"),
    "critic/rewards": ("solver", "reward/mean"),
    "critic/advantages": ("solver", "advantage/mean_abs"),
    "critic/values": ("solver", "value/mean"),
    "critic/vf_loss": ("solver", "value/loss"),
    "critic/vf_clipfrac": ("solver", "value/clip_fraction"),
    "critic/kl": ("solver", "kl"),
    "actor/entropy_loss": ("solver", "entropy"),
    "actor/pg_loss": ("solver", "loss"),
    "actor/pg_clipfrac": ("solver", "clip_fraction"),
    "actor/ppo_kl": ("solver", "logprob_mismatch/kl"),
    "actor/kl_coef": ("solver", "kl/coef"),
    "actor/grad_norm": ("solver", "grad_norm"),
    "actor/lr": ("solver", "lr"),
    "response_length/mean": ("solver", "response_length/mean"),
    "response_length/max": ("solver", "response_length/max"),
    "response_length/clip_ratio": ("solver", "response_length/cut"),
    "prompt_length/mean": ("solver", "prompt_length/mean"),
    "observation length": ("proposer", "observation_length/mean"),
    "env/finish_ratio": ("solver", "ended/final"),
    "response_length (sum)": ("solver", "tokens"),
    "timing_s/gen": ("game", "time/generate"),
    "timing_s/update_actor": ("solver", "seconds"),
    "timing_s/step": ("game", "time/step"),
    "timing_per_token_ms (inverse)": ("solver", "tokens_per_second"),
    "mfu/actor": ("solver", "mfu"),
}
"""Theirs → role and name of ours. `ratio_of_valid_action` is what `reject/solver_<rule>` leaves."""


@pytest.mark.covers("SR-13")
def test_three_steps_have_every_figure_that_a_user_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "Learner", learner_worker.Learner)
    solver = {"algorithm": "gae", "loss": "ppo_clip", "kl__coef": 0.05, "kl__target": 0.1}
    sizes = {"steps": 3, "eval__every": 3, "save__every": 3, "proposer__batch": 6, "solver__batch": 4}
    stage = Stage(config(**sizes, **{f"solver__{k}": v for k, v in solver.items()}), tmp_path / "run", model=ARTEFACT)
    log = RunLog(stage.folder.path)
    monkeypatch.setattr(stage.sink, "write", log.write)
    stage.play()
    log.close()
    rows = read_metrics(stage.folder.metrics)
    for theirs, (role, ours) in OURS.items():
        told = [row.get(ours) for row in rows if row["role"] == role]
        assert len(told) == 3 and all(value is not None and math.isfinite(value) for value in told), theirs
    assert not any(row.get("not_finite") for row in rows)
    assert any("time/eval" in row for row in rows if row["role"] == "eval")

    unfinished = sum(value for row in rows for name, value in row.items() if name.startswith("reject/solver_"))
    records = [record for file in stage.folder.episodes.glob("*.parquet") for record in episodes.read(file)]
    played = [record for record in records if record.role == "solver" and not record.id.startswith("eval")]
    assert 0 < unfinished == sum(record.stopped != "final" for record in played)
