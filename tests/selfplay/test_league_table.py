"""The payoff table of a run that was really played: every graded attempt at a proposer's question is in it, once."""

from __future__ import annotations

from pathlib import Path

import fakes
import pytest
from fakes import Stage, config

from ssp.selfplay.league.payoff import read
from ssp.selfplay.league.ratings import fit


@pytest.mark.parametrize(("batch", "algorithm"), [("dummy", "grpo"), ("replay", "grpo"), ("dummy", "remax")])
def test_who_met_whom_is_read_from_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: str, algorithm: str
) -> None:
    """ReMax's greedy answer is a baseline, and no attempt."""
    fakes.scripted(monkeypatch)
    cfg = config(game__batch=batch, proposer__batch=4, solver__algorithm=algorithm)
    stage = Stage(cfg, tmp_path / "run", jitter=1)
    stage.play()
    table, mixed = read(tmp_path / "run" / "ledger.db")
    graded = "outcome IN ('scored', 'rejected') AND game_id IN (SELECT id FROM games WHERE win_rate IS NOT NULL)"
    attempts = stage.rows(f"SELECT * FROM episodes WHERE role = 'solver' AND id NOT LIKE '%greedy%' AND {graded}")
    assert (len(stage.rows("SELECT id FROM episodes WHERE id LIKE '%greedy%'")) > 0) == (algorithm == "remax")
    games = stage.rows("SELECT win_rate AS r, attempts AS n FROM games WHERE win_rate IS NOT NULL")
    counts = [table.count(*pair) for pair in table.pairs()]
    assert mixed == 0 and attempts
    assert [sum(column) for column in zip(*counts, strict=True)] == [
        len(games),
        len(attempts),
        round(sum(row["r"] * row["n"] for row in games)),
    ]
    met = {(row["policy_version_min"], row["opponent_version_min"]) for row in attempts}
    assert {*table.pairs()} == met
    # In step, a version meets its like alone; only replayed questions are an older version's.
    assert (len({solver - proposer for solver, proposer in met}) > 1) == (batch == "replay")
    first, second = table.versions("solver")[:2]
    assert fit(table).gain("solver", second, first)[1] > 0
