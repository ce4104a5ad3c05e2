"""EP-09: the evaluation of the anchor plays with the anchor's weights and with nobody else's."""

from __future__ import annotations

from pathlib import Path

import fakes
import numpy as np
import pytest
from fakes import FakeLearner, Stage, config

from ssp.base.episode import SOLVER
from ssp.engines import ScriptedEngine
from ssp.selfplay.transfer.parcel import Parcel
from ssp.selfplay.workers import build
from tests import local

MOVING = {"solver__kl__coef": 0.01, "solver__kl__ema_tau": 0.9, "solver__kl__ema_every": 1}
GIVEN = {"game__questions": "dataset", "solver__batch": 2, "solver__algorithm": "reinforce"}


class Anchored(FakeLearner):
    """Its anchor has weights below 0."""

    def anchor_weights(self) -> tuple[Parcel, dict[str, float]]:
        self._maybe_die("anchor_weights")
        return Parcel({"w": np.array([-1.0 - self.updates], np.float32)}), {}


class Told(ScriptedEngine):
    loaded: list[tuple[int, float]] = []

    def load(self, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        super().load(weights, version, keep)
        Told.loaded.append((version, float(weights["w"][0])))


def test_a_learner_that_dies_in_the_final_evaluation_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "engine", lambda *args: Told(fakes.script))
    monkeypatch.setattr(local, "Learner", Anchored)
    cfg = config(steps=2, eval__every=0, **GIVEN, **MOVING)
    stage = Stage(cfg, tmp_path / "run")
    FakeLearner.reset()
    FakeLearner.fail_at = {f"{SOLVER}/anchor_weights": {1}}
    stage.whole()
    assert FakeLearner.calls[f"{SOLVER}/anchor_weights"] == 2 and stage.sink.steps("eval") == [0, 2]
    FakeLearner.reset()


@pytest.mark.covers("EP-09")
@pytest.mark.parametrize("bound", [0, 1])
def test_when_the_anchor_is_evaluated_and_with_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: int
) -> None:
    monkeypatch.setattr(build, "engine", lambda *args: Told(fakes.script))
    monkeypatch.setattr(local, "Learner", Anchored)
    Told.loaded = []
    cfg = config(steps=5, eval__every=3, bounds=(0, bound), **GIVEN, **MOVING)
    stage = Stage(cfg, tmp_path / "run", jitter=1).whole()
    rows = {step: values for step, role, values in stage.sink.rows if role == "eval"}
    assert {step: sorted({"eval/accuracy", "eval/anchor_accuracy"} & set(row)) for step, row in rows.items()} == {
        0: ["eval/accuracy"],
        3: ["eval/accuracy"],
        5: ["eval/accuracy", "eval/anchor_accuracy"],
    }
    anchors = {weight for version, weight in Told.loaded if version > 2**30}
    assert anchors == {-6.0} and all(weight >= 0 for version, weight in Told.loaded if version < 2**30)
    assert not [row for row in stage.rows() if row["cause"] == "stale"]
    trained = [row for row in stage.rows() if row["role"] == SOLVER and row["policy_version_max"] > 2**30]
    assert trained == []
