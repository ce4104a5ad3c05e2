"""A recipe with `--tiny` by the real command, on real Ray: reinforcement learning on given questions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trainruns import Cluster, ledger_is_sound, run

from ssp.game import protocols
from ssp.selfplay.settings import load

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]
NAME = "search-r1-qwen2.5-3b-ppo"


@pytest.mark.covers("RS-01")
def test_a_recipe_on_a_data_set_has_the_solvers_actors_only(ray_cluster: Cluster, tmp_path: Path) -> None:
    with run(tmp_path / "dataset", recipe=NAME, env=ray_cluster.env) as made:
        made.until("the first step", lambda: made.steps() >= 1)
        names = ray_cluster.actors("dataset")
        made.ends_well()
    assert names and not [name for name in names if "proposer" in name]
    state = json.loads((made.folder / "checkpoints" / "state.json").read_text())
    assert set(state["folders"]) == {"solver"}
    assert (state["step"], state["cursor"]["next"], state["cursor"]["open"]) == (2, 2, [])
    record, mark = (
        json.loads((made.folder / state["folders"]["solver"] / "ssp.json").read_text()),
        protocols.get(load(NAME).protocol).mark,
    )
    assert {key: record[key] for key in mark} == mark
    ledger_is_sound(made, ["solver"])
    assert made.sql("SELECT DISTINCT role FROM episodes ORDER BY role") == [("eval",), ("solver",)]
    rows = made.rows("solver")
    assert {row["step"] for row in rows} == {1, 2} and not made.rows("proposer")
    assert all(row["grad_norm"] > 0 for row in rows)
    games = made.rows("game")
    assert len({row["game/played"] for row in games}) == 1 and sum(row["game/solver_searches"] for row in games) > 0
    assert "solver: held-out accuracy" in made.text() and "proposer:" not in made.text()
