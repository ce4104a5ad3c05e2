"""One seed of the default duel, cut short: both sides move in the right direction. docs/learning.md has the spread."""

from __future__ import annotations

from pathlib import Path

import inprocess
import pytest
from trainruns import FEW, POLICY, Left, ledger_is_sound

from ssp.selfplay.settings import load

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

DEFAULT_SIZES = [
    "proposer.batch=96",
    "solver.batch=48",
    "game.attempts=6",
    "eval.every=0",
    "eval.final_questions_per_hop=128",
    f"defaults.model={POLICY}",
    *FEW,
]


def test_both_sides_learn_within_fifteen_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The solver gains at least 10 points in a world that it never searched in training, the proposer's questions grow
    by 0.3 hops, next to no question is junk, and without search nothing can be answered. In one process, which plays the
    run that Ray plays (test_train.py).
    """
    monkeypatch.setattr(inprocess, "SECONDS", 800)
    settings = ["steps=15", "seed=0", *DEFAULT_SIZES, f"run.dir={tmp_path / 'duel'}"]
    made = inprocess.play(load("quickstart", settings), "quickstart")
    ledger_is_sound(Left(made.folder.path))
    evals, games = made.figures("eval"), made.figures("game")
    first, last = evals[0], evals[-1]
    assert last["eval/accuracy_mean123"] - first["eval/accuracy_mean123"] >= 0.10
    assert abs(last["eval/train/accuracy_mean123"] - last["eval/accuracy_mean123"]) < 0.10
    assert last["eval/nosearch/accuracy"] < 0.05
    hops = [values["game/hops_mean"] for values in games]
    assert sum(hops[-3:]) / 3 - sum(hops[:3]) / 3 >= 0.3
    accepted = sum(values["game/accepted"] for values in games)
    assert sum(values["game/junk_rate"] * values["game/accepted"] for values in games) / accepted <= 0.02
    assert max(values["audit/false_agreement"] for values in games) == 0, "no wrong label is anybody's answer"
