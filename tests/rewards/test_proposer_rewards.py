"""Proposer rewards and the rule when a game counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ssp.base.episode import PROPOSER, Episode, Grade
from ssp.base.errors import InputError, InvariantError
from ssp.base.played import Brief, Game
from ssp.config.role import RoleConfig
from ssp.game.games.pay import facts
from ssp.game.rewards import proposer
from ssp.selfplay.settings import load
from ssp.selfplay.settle import settle

CFG = RoleConfig()


@pytest.mark.covers("SP-02")
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("1-acc", (1.0, 0.8, 0.5, 0.0)),
        ("intermediate_difficulty", (0.0, 0.64, 1.0, 0.0)),
        ("format_only", (1.0, 1.0, 1.0, 1.0)),
        ("target_difficulty", (0.0, 0.4, 1.0, 0.0)),
    ],
)
def test_golden_values_at_four_win_rates(kind: str, values: tuple[float, ...]) -> None:
    rates = (0.0, 0.2, 0.5, 1.0)
    assert [proposer.reward(kind, rate, CFG) for rate in rates] == pytest.approx(values)


@pytest.mark.covers("SP-02")
def test_the_ends_of_intermediate_difficulty_can_be_moved() -> None:
    """4 (left + s) (right - s) strictly between 0 and 1, and 0 at both ends whatever the options."""
    cfg = RoleConfig(reward_options={"left": 0.5, "right": 1.2})
    found = [proposer.reward("intermediate_difficulty", rate, cfg) for rate in (0.0, 0.2, 0.5, 1.0)]
    assert found == pytest.approx([0.0, 4 * 0.7 * 1.0, 4 * 1.0 * 0.7, 0.0])


@pytest.mark.covers("SP-02")
@pytest.mark.parametrize("penalty", [-1.0, 0.0])
@pytest.mark.parametrize("kind", proposer.names())
def test_an_invalid_question_earns_the_penalty_whatever_the_kind(kind: str, penalty: float) -> None:
    cfg = load("quickstart", [f"proposer.reward={kind}", f"proposer.invalid_reward={penalty}"])
    asked = replace(Brief.of(Episode("p1", "g1", PROPOSER, 0), "", 0), version_min=1, version_max=1)
    settled = settle(cfg, [Game("g1", 1, "t", proposal=asked, rule="leakage")], 7)
    assert [item.reward for item in settled.samples[PROPOSER]] == [penalty]


@pytest.mark.parametrize("goal", [0.0, 0.3, 0.5, 0.8, 1.0])
def test_target_difficulty_peaks_at_its_target_and_stays_in_range(goal: float) -> None:
    cfg = RoleConfig(reward_options={"goal": goal})
    rewards = [proposer.reward("target_difficulty", i / 10, cfg) for i in range(11)]
    assert proposer.reward("target_difficulty", 1.0 - goal, cfg) == pytest.approx(1.0)
    assert min(rewards) == pytest.approx(0.0)
    assert max(rewards) <= 1.0


def test_unknown_kind_and_impossible_rate() -> None:
    with pytest.raises(InputError, match="1-acc"):
        proposer.reward("acc", 0.5, CFG)
    with pytest.raises(InvariantError):
        proposer.reward("1-acc", 1.5, CFG)
    with pytest.raises(InputError, match="1-acc"):
        proposer.check("acc", {})


@pytest.mark.parametrize(
    ("outcomes", "n", "rate"),
    [
        ([True, False, True, True], 4, 0.75),
        ([True, None, None, False], 4, 0.5),
        ([True, None, None, None], 4, None),
        ([True, False, None, None, None], 5, None),
        ([True, False, False, None, None], 5, 1 / 3),
        ([True, False], 4, 0.5),
        ([], 4, None),
        ([None], 1, None),
        ([False], 1, 0.0),
    ],
)
def test_a_game_needs_half_its_attempts_scored(outcomes: list[bool | None], n: int, rate: float | None) -> None:
    assert proposer.win_rate(outcomes, n) == (None if rate is None else pytest.approx(rate))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("azr", [0.0, 0.75, 0.5, 0.25, 0.0]),
        ("dr_zero", [0.0, 1.0, 2 / 3, 1 / 3, 0.0]),
        ("r_zero", [0.0, 0.5, 1.0, 0.5, 0.0]),
        ("r_zero_code", [0.0, 0.25, 0.5, 0.25, 0.0]),
        ("searchmaster", [-0.05, 0.19, 0.19, 0.19, -0.05]),
        ("spice", [0.043937, 0.822578, 1.0, 0.822578, 0.043937]),
        ("ssr", [-0.8, 0.55, 0.1, -0.35, -0.8]),
    ],
)
@pytest.mark.covers("GA-06")
def test_the_rewards_of_the_field(kind: str, values: list[float]) -> None:
    """Of four attempts 0 to 4 are right, the quickest after three searches; of six calls four opened a document."""
    cfg = RoleConfig(reward=kind)
    proposer.check(kind, {})
    earned = []
    for right in range(5):
        facts = {"solved": right, "graded": 4, "depth": 3, "searches": 6, "opens": 4, "question": "?", "target": "t"}
        earned.append(proposer.reward(kind, right / 4, cfg, facts))
    assert earned == pytest.approx(values, abs=1e-6)


def test_a_game_tells_a_reward_how_its_question_was_answered() -> None:
    """Graded attempts count, and the quickest right one."""

    def attempt(name: str, searches: int, opens: int = 0) -> Brief:
        return Brief(name, "g", "solver", 0, "x", None, "", "final", searches, 1, 1, 0, 0, "", 0, opens=opens)

    game = Game("g", 0, "t", question="q ?")
    game.attempts = [attempt("a", 4, 1), attempt("b", 2), attempt("c", 1), attempt("d", 9)]
    game.grades = {"a": Grade(True), "b": Grade(False), "c": Grade(None), "d": Grade(True)}
    told = facts(game, attempt("p", 5, 2))
    assert told == {
        "question": "q ?", "target": "t", "searches": 5, "opens": 2, "solved": 2, "graded": 3, "depth": 3,
    }  # fmt: skip
