"""The league of a run: who is kept, who is met, what is remembered, and that a resumed run goes on as it would have."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssp.base.episode import PROPOSER, ROLES, SOLVER
from ssp.base.played import ANSWERS, ASKS
from ssp.config.schema import LeagueConfig
from ssp.extras.league import league as rules
from ssp.extras.league.league import DOUBT, League, Pool, pfsp
from ssp.extras.league.payoff import MatchResult
from tests.blocks import made


def published(league: League, role: str, version: int) -> list[int]:
    """A new version, whose weights can be kept: newest now, perhaps a member. The members that left."""
    league.newest(role, version)
    return league.admit(role, version) if league.wants(role, version) else []


def rounds(league: League, first: int, last: int, slots: int = 2) -> list[tuple[Any, ...]]:
    """Play from `first` to `last`; strength grows with the version. What was met and what left, a round a tuple."""
    log = []
    for round_ in range(first, last):
        left = {role: published(league, role, round_) for role in ROLES}
        met = {role: [league.opponent(role, round_, slot) for slot in range(slots)] for role in ROLES}
        rng, games = np.random.default_rng(round_), []
        for role, other in ((SOLVER, PROPOSER), (PROPOSER, SOLVER)):
            for version in met[role]:
                assert version is None or version in league.members(other)
                pair = (round_, round_ if version is None else version)
                solver, proposer = pair if role == SOLVER else pair[::-1]
                p = 1 / (1 + np.exp(-(solver - proposer) / 10))
                games += [MatchResult(solver, proposer, int(k), 4) for k in rng.binomial(4, p, 5)]
        league.saw(games)
        later = league.done(round_)
        log.append((tuple(met[SOLVER]), tuple(met[PROPOSER]), str(left), str(later)))
    return log


def test_a_resumed_run_goes_on_as_it_would_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain data through JSON, in the middle: the same opponents, members, odds and ratings, bit for bit (law 7)."""
    monkeypatch.setattr(rules, "RECENT", 6)
    settings = made(LeagueConfig, match="mix", every=3, size=4)
    whole, half, again = (League(settings, 5, PROPOSER, SOLVER) for _ in range(3))
    log = rounds(whole, 0, 40)
    rounds(half, 0, 20)
    again.restore(json.loads(json.dumps(half.state())))
    assert rounds(again, 20, 40) == log[20:]
    assert json.dumps(again.state()) == json.dumps(whole.state())
    assert [again.odds(role).tolist() for role in ROLES] == [whole.odds(role).tolist() for role in ROLES]
    assert {match for role in (0, 1) for entry in log for match in entry[role]} > {None}
    assert rounds(League(settings, 6, PROPOSER, SOLVER), 0, 40) != log


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "RECENT", 8)
    league = League(made(LeagueConfig, match="mix", every=2, size=5), 0, PROPOSER, SOLVER)
    sizes = []
    for first in range(0, 160, 40):
        rounds(league, first, first + 40)
        sizes.append(len(league.table.pairs()))
        for role in ROLES:
            assert len(league.members(role)) <= 5 and league.members(role)[0] == 0
            assert len(league.table.versions({PROPOSER: ASKS, SOLVER: ANSWERS}[role])) <= 5 + 8 + 2
    assert sizes[3] < 2 * sizes[0]  # it would be four times as many


def test_an_opponent_stays_until_its_round_is_done() -> None:
    league = League(made(LeagueConfig, match="prioritised", every=1, size=3), 0, PROPOSER, SOLVER)
    for version in range(3):
        assert [published(league, role, version) for role in ROLES] == [[], []]
    met, also = (next(r for r in range(20) if league.opponent(PROPOSER, r) == version) for version in (1, 2))
    for round_ in range(20):
        if round_ not in (met, also):
            league.done(round_)
    for version in range(3, 8):
        assert not {1, 2} & {*published(league, SOLVER, version)}
        league.done(99)
    assert league.opponent(PROPOSER, met) == 1  # asked again, the same answer
    assert league.members(SOLVER) == [0, 1, 2, 7]  # one above its size, while both are played
    assert league.done(met) == {PROPOSER: [], SOLVER: [1]}
    assert league.members(SOLVER) == [0, 2, 7]


def test_after_a_collapse_the_draws_are_others() -> None:
    league = League(made(LeagueConfig, match="prioritised", every=1, size=8), 0, PROPOSER, SOLVER)
    for version in range(8):
        published(league, SOLVER, version)
    published(league, PROPOSER, 0)
    first = [league.opponent(PROPOSER, round_) for round_ in range(30)]
    league.restore(league.state())
    assert [league.opponent(PROPOSER, round_) for round_ in range(30)] == first
    league.restore(league.state())
    league.redraws = 1
    assert [league.opponent(PROPOSER, round_) for round_ in range(30)] != first


def test_chances_come_from_games_and_where_there_are_none_from_ratings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest solver has not played; its predecessor won 3 of 4 against member 1, and nobody met member 2."""
    monkeypatch.setattr(rules, "DECAY", 0.5)
    league = League(made(LeagueConfig, match="mix", every=1), 0, PROPOSER, SOLVER)
    for version in (1, 2):
        published(league, PROPOSER, version)
    published(league, SOLVER, 1)
    league.saw([MatchResult(1, 1, k, 1) for k in [1] * 75 + [0] * 25])
    published(league, SOLVER, 2)
    known, guessed = league.chances(SOLVER)
    expected = league.ratings()
    assert known == pytest.approx((0.5 * 75 + DOUBT * expected.chance(2, 1)) / (0.5 * 100 + DOUBT))
    assert guessed == pytest.approx(expected.chance(2, 2))
    assert guessed > 0.6  # proposer 2 is expected where proposer 1 is
    (mirrored,) = (chance for chance in league.chances(PROPOSER)[:1])
    assert mirrored == pytest.approx((0.5 * 25 + DOUBT * (1 - expected.chance(1, 2))) / (0.5 * 100 + DOUBT))


def test_who_has_the_nearest_neighbours_leaves_but_those_being_played() -> None:
    pool = Pool(1, 4)
    left = [pool.admit(version) for version in (0, 10, 20, 30, 32, 60)]
    assert left == [[], [], [], [], [30], [10]] and pool.members == [0, 20, 32, 60]
    assert pool.admit(61, playing={20, 32, 60}) == [] and len(pool.members) == 5  # above its size while they play
    assert pool.trim(playing={32}) == [60] and pool.members == [0, 20, 32, 61]


@settings(max_examples=40)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(3, 8), st.data())
def test_whatever_happens_the_rules_hold(steps: list[int], size: int, data: st.DataObject) -> None:
    pool, version, order = Pool(1, size), 0, []
    for step in steps:
        version += step
        order.append(version)
        playing = set(data.draw(st.lists(st.sampled_from(order), max_size=2))) & {*pool.members}
        before = {*pool.members, version}
        left = pool.admit(version, playing)
        assert before == {*pool.members, *left} and not {*pool.members} & {*left}
        assert pool.members == sorted(pool.members) and len(pool.members) <= max(size, 2 + len(playing))
        assert {order[0], version, *playing} <= {*pool.members}


CHANCES = [0.9, 0.5, 0.2, 0.5]


def test_pfsp_is_the_published_formula() -> None:
    hard = np.array([0.1**2, 0.5**2, 0.8**2, 0.5**2])
    assert pfsp(CHANCES) == pytest.approx(hard / hard.sum())
    assert pfsp(CHANCES, power=0) == pytest.approx([0.25] * 4)
    assert pfsp([1.0, 1.0]) == pytest.approx([0.5, 0.5])  # nobody is of use: all alike


@pytest.mark.parametrize("power", [30.0, 400.0, 1e6])
def test_a_sharper_choice_stays_a_choice(power: float) -> None:
    """Also against members that one nearly always beats."""
    assert pfsp([0.9, 0.5, 0.7], power) == pytest.approx([0, 1, 0], abs=1e-4)
    assert pfsp([0.999, 0.99, 0.98, 0.98], power) == pytest.approx([0, 0, 0.5, 0.5], abs=1e-4)
    assert pfsp([1.0, 1 - 1e-9], power).tolist() == [0, 1]


@pytest.mark.parametrize(("match", "past"), [("self", 0.0), ("mix", 0.5), ("prioritised", 1.0)])
def test_how_often_past_versions_are_met(match: str, past: float) -> None:
    league = League(made(LeagueConfig, match=match, every=1), 0, PROPOSER, SOLVER)
    published(league, SOLVER, 0)
    published(league, PROPOSER, 0)
    league._pools[PROPOSER].members.clear()
    assert league.odds(SOLVER).tolist() == [1.0]  # without members nobody else is met
    for version in range(4):
        published(league, PROPOSER, version)
    odds = league.odds(SOLVER)
    assert odds[0] == 1 - past and odds[1:] == pytest.approx(past * pfsp(league.chances(SOLVER), 4.0))
