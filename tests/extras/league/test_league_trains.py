"""A league on real Ray: real engines load past weights in turn with the newest, real learners keep members' folders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from trainruns import POLICY, ledger_is_sound, run

from ssp.base.episode import ROLES, SOLVER
from ssp.base.played import ANSWERS, ASKS
from ssp.extras.league.payoff import PayoffTable, count
from ssp.record.ledger import Ledger

pytestmark = [pytest.mark.ray, pytest.mark.nightly]  # in CI: test_league_rounds.py, in one process


def test_both_roles_meet_past_versions(tmp_path: Path) -> None:
    settings = ["league.match=mix", "steps=5", "save.every=1"]
    with run(tmp_path / "duel", *settings, "ray.dashboard=-1") as made:
        made.ends_well()
        ledger_is_sound(made)
    state = json.loads((made.folder / "checkpoints" / "state.json").read_text())
    start = load_file(POLICY / "model.safetensors")
    for role in ROLES:
        kept = state["league"]["kept"][role]
        assert [*kept] == [str(step) for step in range(5)]
        found = [
            load_file(made.folder / "members" / role / f"v{version}" / "model.safetensors") for version in kept.values()
        ]
        assert all(np.array_equal(found[0][name], tensor) for name, tensor in start.items())
        assert any(not np.array_equal(found[0][name], found[1][name]) for name in start)
        rows = made.rows(role)
        assert [row["league/pool"] for row in rows] == [1, 2, 3, 4, 5]
        assert max(row.get("league/past", 0.0) for row in rows) > 0
        assert max(row["staleness/max"] for row in rows) == 0  # an old opponent is not stale
    older = "opponent_version_min < policy_version_min AND state = 'trained'"
    for role in ROLES:
        assert made.sql(f"SELECT count(*) FROM episodes WHERE role = '{role}' AND {older}") > [(0,)]
        past = made.sql(
            f"SELECT min(policy_version_min), count(*) FROM episodes WHERE role = '{role}' AND state = 'kept'"
        )
        assert past[0][1] > 0 and past[0][0] < 5
    graded = made.sql("SELECT DISTINCT game_id FROM episodes WHERE role = 'solver' AND state = 'kept'")
    further = made.sql("SELECT DISTINCT id FROM games WHERE id LIKE 'r%n'")
    assert {f"r{id[1:]}n" for (id,) in graded} == {id for (id,) in further}
    table = PayoffTable()
    mixed = count(table, *Ledger(made.folder / "ledger.db", readonly=True).settled(), SOLVER)
    pairs = table.pairs()
    assert mixed == 0 and any(s < p for s, p in pairs) and any(s > p for s, p in pairs)
    assert {*table.versions(ANSWERS)} | {*table.versions(ASKS)} <= {*range(1, 6)}
