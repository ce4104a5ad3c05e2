"""The figures that users of Search-R1 watch: a run of three steps with a critic has each of them under our name, finite."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from fakes import Stage, config

from ssp.learning.coldstart import ARTEFACT
from ssp.record import episodes
from ssp.selfplay.workers import learner as learner_worker
from ssp.telemetry.runlog import RunLog, read_metrics
from tests import local

OURS = {
    "game": "game/solver_searches game/tokens time/generate time/step",
    "proposer": "observation_length/mean",
    "solver": "searches reward/all reward/mean advantage/mean_abs value/mean value/loss value/clip_fraction kl entropy loss "
    "clip_fraction logprob_mismatch/kl kl/coef grad_norm lr response_length/mean response_length/max response_length/cut "
    "prompt_length/mean ended/final tokens seconds tokens_per_second mfu",
}
"""Role → what stands for theirs (docs/metrics.md). `ratio_of_valid_action` is what `reject/solver_<rule>` leaves."""


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
