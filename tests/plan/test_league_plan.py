"""What a plan makes of a league: past versions play, and nobody learns from it."""

from __future__ import annotations

import pytest

from ssp.base.episode import PROPOSER, ROLES, SOLVER
from ssp.capacity.plan.costs import Costs
from ssp.capacity.plan.simulate import simulate
from ssp.capacity.plan.split import Split, work
from ssp.config.schema import Config
from ssp.selfplay.settings import load


def config(match: str, *typed: str) -> Config:
    """Two roles that learn, in step, of as many questions."""
    both = ["proposer.batch=16", "solver.batch=16", "schedule.preset=", "schedule.in_flight=false"]
    return load("simulated", [f"league.match={match}", *both, *typed])


def test_work_counts_what_past_versions_play_and_not_as_learning() -> None:
    """Of `mix` half of whom a role may meet is past; a past proposer asks for half of the targets at most."""
    alone, mixed = (work(config(match), Costs()) for match in ("self", "mix"))
    more = {role: [there[role] / without[role] for without, there in zip(alone, mixed, strict=True)] for role in ROLES}
    assert more == {SOLVER: pytest.approx([1.375, 1.0]), PROPOSER: pytest.approx([1.0, 0.75])}


def test_a_simulated_league_plays_more_and_trains_less() -> None:
    """As the coordinator has it: every other target is asked by a past proposer, and the rest is tried twice."""
    split = Split({role: 1 for role in ROLES}, {role: 1 for role in ROLES}, 4, 1)
    alone, past = (simulate(config(*typed), split, Costs()) for typed in (("self",), ("past", "league.every=1")))
    assert past.step > alone.step
    assert past.generated[SOLVER] == pytest.approx(1.5 * alone.generated[SOLVER], rel=0.1)
    assert past.trained[SOLVER] / past.rounds == pytest.approx(alone.trained[SOLVER] / alone.rounds, rel=0.1)
    assert past.trained[PROPOSER] / past.rounds == pytest.approx(alone.trained[PROPOSER] / alone.rounds / 2, rel=0.1)
