"""Recipes with `--tiny` by the real command, on real Ray."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trainruns import Cluster, ledger_is_sound, run

from ssp import config, protocols
from ssp.episode import ROLES, SOLVER

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.covers("RS-01", "SP-01")
@pytest.mark.parametrize(("name", "roles"), [("ssp-qwen2.5-7b", ROLES), ("search-r1-qwen2.5-3b-ppo", (SOLVER,))])
def test_a_recipe_trains_small(name: str, roles: tuple[str, ...], ray_cluster: Cluster, tmp_path: Path) -> None:
    with run(tmp_path / "run", recipe=name, env=ray_cluster.env) as made:
        made.ends_well()
    ledger_is_sound(made, roles)
    state = json.loads((made.folder / "checkpoints" / "state.json").read_text())
    assert state["step"] == 2 and set(state["folders"]) == set(roles)
    mark = protocols.get(config.load(name).protocol).mark
    for role in roles:
        rows = made.rows(role)
        assert [row["step"] for row in rows] == [1, 2] and all(row["grad_norm"] > 0 for row in rows)
        record = json.loads((made.folder / state["folders"][role] / "ssp.json").read_text())
        assert {key: record[key] for key in mark} == mark
    searches = made.sql("SELECT count(*) FROM episodes WHERE role = 'solver' AND outcome = 'scored'")
    assert searches[0][0] > 0 and sum(row["game/solver_searches"] for row in made.rows("game")) > 0
