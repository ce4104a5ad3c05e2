"""EP-09: the evaluation of the anchor plays with the anchor's weights and with nobody else's."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
import torch
from fakes import FakeLearner, Stage, config

from ssp.base.episode import SOLVER
from ssp.base.errors import InputError
from ssp.engines import ScriptedEngine
from ssp.learning import settings as learning_rules
from ssp.learning.coldstart.store import ARTEFACT
from ssp.selfplay import local
from ssp.selfplay.transfer.parcel import OBJECT_STORE, Parcel
from ssp.selfplay.workers import build
from ssp.selfplay.workers import learner as learner_worker

MOVING = {"solver__kl__coef": 0.01, "solver__kl__ema_tau": 0.9, "solver__kl__ema_every": 1}
GIVEN = {"game__questions": "dataset", "solver__batch": 2, "solver__algorithm": "reinforce"}


class Poisoned(learner_worker.Learner):
    """Its policy is not a number after the first update; what it is held to is."""

    def _learn(self, batches: Any) -> Any:
        figures = super()._learn(batches)
        with torch.no_grad():
            for parameter in self._inner.policy.model.parameters():
                parameter.fill_(math.nan)
        return figures


@pytest.mark.covers("EP-09")
def test_a_poisoned_policy_has_an_anchor_that_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = build.engine
    fakes.scripted(monkeypatch)
    monkeypatch.setattr(build, "engine", real)
    monkeypatch.setattr(local, "Learner", Poisoned)
    cfg = config(steps=1, game__attempts=2, eval__every=0, eval__final_questions_per_hop=8, **GIVEN, **MOVING)
    stage = Stage(cfg, tmp_path / "run", model=ARTEFACT)
    stage.play()
    stage.settled()
    found = stage.figures("eval")[-1]
    assert found["eval/anchor_items"] == 8 and math.isfinite(found["eval/anchor_accuracy"])
    assert found["eval/anchor_accuracy"] > 0.3  # the cold start answers most questions of one hop
    assert found.get("eval/items", 0) == 0 or found["eval/accuracy"] == 0  # the policy answers none


class Anchored(FakeLearner):
    """Its anchor has weights below 0."""

    def anchor_weights(self) -> tuple[Parcel, dict[str, float]]:
        return Parcel(OBJECT_STORE, -1, 4, {"w": np.array([-1.0 - self.updates], np.float32)}), {}


class Told(ScriptedEngine):
    """Keeps what it was told to load."""

    loaded: list[tuple[int, float]] = []

    def load(self, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        super().load(weights, version, keep)
        Told.loaded.append((version, float(weights["w"][0])))


@pytest.mark.covers("EP-09")
@pytest.mark.parametrize("bounds", [0, 1])
def test_when_the_anchor_is_evaluated_and_with_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bounds: int
) -> None:
    fakes.scripted(monkeypatch)
    monkeypatch.setattr(build, "engine", lambda *args: Told(fakes.script))
    monkeypatch.setattr(local, "Learner", Anchored)
    Told.loaded = []
    cfg = config(
        steps=5, eval__every=3, eval__anchor_every=2, schedule__max_staleness__solver=bounds, **GIVEN, **MOVING
    )
    stage = Stage(cfg, tmp_path / "run", jitter=1)
    stage.play()
    stage.settled()
    rows = {step: values for step, role, values in stage.sink.rows if role == "eval"}
    assert {step: sorted({"eval/accuracy", "eval/anchor_accuracy"} & set(row)) for step, row in rows.items()} == {
        0: ["eval/accuracy"],
        2: ["eval/anchor_accuracy"],
        3: ["eval/accuracy"],
        4: ["eval/anchor_accuracy"],
        5: ["eval/accuracy", "eval/anchor_accuracy"],
    }
    anchors = {weight for version, weight in Told.loaded if version > 2**30}
    assert anchors == {-3.0, -5.0, -6.0} and all(weight >= 0 for version, weight in Told.loaded if version < 2**30)
    assert not [row for row in stage.rows() if row["cause"] == "stale"]
    trained = [row for row in stage.rows() if row["role"] == SOLVER and row["policy_version_max"] > 2**30]
    assert trained == []


def test_an_anchor_that_does_not_move_is_not_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.scripted(monkeypatch)
    stage = Stage(config(steps=2, solver__kl__coef=0.01, **GIVEN), tmp_path / "run")
    stage.play()
    assert not [key for row in stage.figures("eval") for key in row if "anchor" in key]


@pytest.mark.parametrize("changes", [{}, {"solver__kl__coef": 0.1}, {**MOVING, "schedule__in_flight": True}])
def test_an_evaluation_that_would_show_nothing_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="eval.anchor_every"):
        learning_rules.anchors_that_are_evaluated_move(config(eval__anchor_every=2, **changes))
    learning_rules.anchors_that_are_evaluated_move(config(eval__anchor_every=2, **MOVING))
