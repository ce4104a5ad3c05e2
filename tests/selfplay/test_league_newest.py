"""What is remembered and reported of a round in which past versions played is the newest versions' work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import fakes
import pytest
from fakes import Sink, brief, config, game

from ssp.base.episode import PROPOSER, ROLES, SOLVER
from ssp.selfplay.league.matchmaker import _again
from ssp.selfplay.records import Game
from ssp.selfplay.report import Report
from ssp.selfplay.settle import Round
from ssp.selfplay.targets import Batches
from ssp.telemetry.clock import Clock


@pytest.mark.parametrize("rate", [0.25, None])
def test_a_past_graders_rate_is_not_remembered(rate: float | None) -> None:
    """The question is known by what the newest made of it in its further game; when all of that is void, not at all."""
    cfg = config(game__batch="replay")
    pool, never = (Batches(cfg.game, 4, 0) for _ in range(2))
    graded, own = game("g1", win_rate=1.0, frozen=SOLVER), game("g2", win_rate=0.5)
    further = _again(graded, asked_by=7)
    further.win_rate = rate
    pool.remember(0, [graded, own, further])
    known = {item["question"]: (item["win_rate"], item["asked_by"]) for item in pool.state()}
    expected = {own.question: (0.5, 1)}
    assert known == (expected if rate is None else {**expected, graded.question: (0.25, 7)})
    pool.restore([{**item, "win_rate": 0.9} for item in pool.state()])
    pool.remember(1, [graded])
    assert {item["win_rate"] for item in pool.state()} == {0.9}
    never.remember(0, [replace(further, number=-1, win_rate=0.5)])  # a refill that the pool has lost meanwhile
    assert never.state() == []


def searched(id: str, proposer: int, solver: int, **changes: Any) -> Game:
    """A game whose proposal and one attempt searched so often."""
    made = game(id, [True], n=1, **changes)
    made.attempts = [brief(f"s{id}", searches=solver)]
    made.proposal = brief(f"p{id}", PROPOSER, searches=proposer)
    return made


def test_searches_of_a_role_are_its_newest_versions() -> None:
    sink = Sink()
    report = Report(sink, fakes.world(), workers=1, roles=ROLES)
    games = [searched("g1", 2, 3), searched("g2", 5, 9, frozen=SOLVER), searched("g3", 11, 1, frozen=PROPOSER)]
    further = replace(_again(games[1], 1), attempts=[brief("s", searches=5)])
    report.round(Round(0, Clock(), games, [further]), {})
    for role in ROLES:
        report.learned(1, {role: {}})
    (values,) = (values for _, name, values in sink.rows if name == "game")
    assert values["game/proposer_searches"] == (2 + 5) / 2 and values["game/solver_searches"] == (3 + 1 + 5) / 3
    assert values["game/tokens"] == 7 * 5
