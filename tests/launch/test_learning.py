"""One seed of the default duel, cut short: both sides move in the right direction. docs/learning.md has the spread."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainruns import Cluster, ledger_is_sound, run

pytestmark = pytest.mark.ray

DEFAULT_SIZES = [
    "proposer.batch=96",
    "solver.batch=48",
    "game.attempts=6",
    "eval.final_questions_per_hop=128",
]


def test_both_sides_learn_within_fifteen_steps(ray_cluster: Cluster, tmp_path: Path) -> None:
    """The solver gains at least 10 points in a world that it never searched in training, the proposer's questions grow
    by 0.3 hops, next to no question is junk, and without search nothing can be answered.
    """
    with run(tmp_path / "duel", "steps=15", "seed=0", *DEFAULT_SIZES, env=ray_cluster.env) as made:
        made.ends_well()
        first, last = made.rows("eval")[0], made.rows("eval")[-1]
        games = made.rows("game")
        ledger_is_sound(made)
    assert last["eval/accuracy_mean123"] - first["eval/accuracy_mean123"] >= 0.10
    assert abs(last["eval/train/accuracy_mean123"] - last["eval/accuracy_mean123"]) < 0.10
    assert last["eval/nosearch/accuracy"] < 0.05
    hops = [row["game/hops_mean"] for row in games]
    assert sum(hops[-3:]) / 3 - sum(hops[:3]) / 3 >= 0.3
    accepted = sum(row["game/accepted"] for row in games)
    assert sum(row["game/junk_rate"] * row["game/accepted"] for row in games) / accepted <= 0.02
    assert max(row["audit/false_agreement"] for row in games) == 0, "no wrong label is anybody's answer"
