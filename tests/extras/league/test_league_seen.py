"""A league as it is looked at: on the board, in the curriculum's figures, in the plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded import again

from ssp.base.episode import PROPOSED, PROPOSER, ROLES, SOLVER, TRIED
from ssp.capacity.plan.costs import Costs, Split
from ssp.capacity.plan.simulate import simulate
from ssp.extras.league.payoff import MatchResult
from ssp.extras.league.standing import Standing
from ssp.selfplay.curriculum import figures
from ssp.selfplay.settings import load
from tests.board.boarded import looked, played, rows


def test_a_leagues_past_opponents_are_not_stale_play(tmp_path: Path) -> None:
    """In step, whoever plays for a learner is the newest; past opponents are those whose episodes end as kept, and who wrote
    a question that is replayed plays nothing."""
    stage = played(tmp_path / "run", steps=8, league__match="mix", league__every=2, league__size=3)
    found = {key: value for (kind, key), value in rows(looked(stage.folder)).items() if kind == "rounds"}
    own: dict[tuple[int, str], set[int]] = {}
    past: dict[tuple[int, str], set[int]] = {}
    for row in stage.rows("SELECT * FROM episodes WHERE role IN ('proposer', 'solver') AND outcome != 'void'"):
        place = (past if row["state"] == "kept" else own).setdefault((row["round"], row["role"]), set())
        place.add(row["policy_version_min"])
    assert {role for _, role in past} == {"proposer", "solver"}, "both were met"
    for step in range(1, 9):
        _, low, high, lowest, highest, _, _, asked, tried = found[str(step)]
        assert {low, high} == own[step, "proposer"] and {lowest, highest} == own[step, "solver"], step
        assert low == high and lowest == highest, "in step"
        assert asked == sorted(past.get((step, "proposer"), ())) and tried == sorted(past.get((step, "solver"), ())), (
            step
        )
        assert all(version < low for version in asked) and all(version < lowest for version in tried)


def test_who_met_the_same_opponent_is_compared() -> None:
    standing = Standing(SOLVER)
    assert standing.shown()["groups"] == 0
    standing.table.add([MatchResult(1, 1, 3, 6), MatchResult(2, 2, 5, 6)])
    assert standing.shown()["groups"] == 2
    standing.table.add([MatchResult(2, 1, 5, 6), MatchResult(3, 3, 1, 6)])
    assert standing.shown()["groups"] == 2
    standing.table.add([MatchResult(s, p, s + p, 6) for s in (1, 2, 3) for p in (1, 2, 3)])
    assert standing.shown()["groups"] == 1


@pytest.mark.parametrize("match", ["prioritised", "mix"])
def test_what_a_past_solver_grades_has_the_newest_ones_rate(tmp_path: Path, match: str) -> None:
    """Its game has no rate of the newest; that is in the further game in which this one tries the same question."""
    stage = played(tmp_path / "run", steps=6, save__every=2, league__match=match, league__every=2)
    rounds = dict(figures.read(stage.folder))
    again_ = [one for asked in rounds.values() for one in asked if one.kind == TRIED]
    rates = {game["id"]: game["win_rate"] for game in stage.rows("SELECT * FROM games")}
    graded = {one.game: one for asked in rounds.values() for one in asked if one.kind == PROPOSED}
    assert again_ and all(one.rate == rates[one.game] for one in again_)
    assert all(graded[f"g{one.game[1:-1]}"].rate is None for one in again_)
    logged = {}
    for step, role, values in stage.sink.rows:
        if role == "game":
            logged[step] = {name: value for name, value in values.items() if name.startswith("curriculum/")}
    assert {step: values for step, values, _ in again(stage.folder)} == logged


def test_a_simulated_league_plays_more_and_trains_less() -> None:
    """As the coordinator has it: every other target is asked by a past proposer, and the rest is tried twice."""
    both = ["proposer.batch=16", "solver.batch=16", "schedule.preset=", "schedule.in_flight=false"]
    leagues = (["league.match=self"], ["league.match=prioritised", "save.every=1"])
    split = Split({role: 1 for role in ROLES}, {role: 1 for role in ROLES}, 4, 1)
    alone, past = (simulate(load("simulated", [*both, *typed]), split, Costs()) for typed in leagues)
    assert past.step > alone.step
    assert past.generated[SOLVER] == pytest.approx(1.5 * alone.generated[SOLVER], rel=0.1)
    assert past.trained[SOLVER] / past.rounds == pytest.approx(alone.trained[SOLVER] / alone.rounds, rel=0.1)
    assert past.trained[PROPOSER] / past.rounds == pytest.approx(alone.trained[PROPOSER] / alone.rounds / 2, rel=0.1)
