"""The sentence and the cards of the first screen: each rule, and what is not certain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ssp.config.schema import Config
from ssp.selfplay.health import VALID_RATE, WIN_RATE
from ssp.views.board.alarms import GAME, Alarms
from ssp.views.board.verdict import BAD, FAIR, GOOD, UNSURE, FirstScreen, over_evaluations, over_steps
from tests.selfplay import fakes

DOCS = Path(__file__).parent.parent.parent / "docs"
STEPS = range(1, 13)
ACCOUNTS: dict[str, Any] = {
    "issued": {"proposer": 100, "solver": 900},
    "states": {"proposer": {"trained": 100}, "solver": {"trained": 600, "dropped": 300}},
    "outcomes": {"drop/no_signal": 300},
}


def level(value: float) -> list[tuple[int, float]]:
    """About the same at all steps."""
    return [(step, value + 0.01 * (step % 2)) for step in STEPS]


def rise(start: float, end: float) -> list[tuple[int, float]]:
    return [(step, start + (end - start) * (step - 1) / 11 + 0.01 * (step % 2)) for step in STEPS]


def healthy() -> dict[str, Any]:
    """Both sides learn, and every label is true."""
    return {
        "eval eval/accuracy": [(0, 0.4), (12, 0.7)],
        "eval eval/items": [(0, 192.0), (12, 192.0)],
        "game game/win_rate": level(0.7),
        "game game/no_signal_rate": level(0.4),
        "game game/valid_rate": level(0.5),
        "game game/hops_mean": rise(1.2, 2.2),
        "game game/accepted": [(step, 50.0) for step in STEPS],
        "game audit/label_truth": [(step, 1.0) for step in STEPS],
        "game audit/false_rejection": level(0.1),
    }


def judged(changes: dict[str, Any], accounts: dict[str, Any] = ACCOUNTS, cfg: Config | None = None) -> dict[str, Any]:
    figures = {**healthy(), **changes}
    return FirstScreen(cfg or fakes.config(), lambda role, name: figures.get(f"{role} {name}", []), accounts).shown()


def card(said: dict[str, Any], title: str) -> dict[str, Any]:
    (one,) = [one for one in said["cards"] if one["title"] == title]
    return dict(one)


def flat(text: str) -> str:
    return text.replace("\u00a0", " ")


def test_a_healthy_run_says_who_learned_and_by_how_much() -> None:
    said = judged({})
    assert (said["headline"], said["tone"]) == ("Both sides learn", GOOD)
    sentence = flat(said["sentence"])
    assert "The solver learned: held-out accuracy 40.0 % → 70.0 % (+30.0 points, 95 %: +20" in sentence
    assert "the proposer learned: hops 1.39 → 2.02 (+0.63, 95 %: +0.42" in sentence and sentence.endswith(".")
    titles = [one["title"] for one in said["cards"]]
    assert titles == ["solver learns", "proposer learns", "something left to learn", "can I trust it"]
    assert [one["tone"] for one in said["cards"]] == [GOOD] * 4
    facts = card(said, "can I trust it")["facts"]
    assert "void 0 of 1,000 episodes" in facts and "every episode accounted for" in facts
    assert "accepted by the referee: 600 of 600 are true" in facts


WON = {"game game/win_rate": level(0.97), "game game/no_signal_rate": level(0.96)}
JUNK = {"game game/win_rate": level(WIN_RATE / 2), "game game/valid_rate": level(VALID_RATE + 0.1)}
FALSE = {"game audit/label_truth": level(0.1)}
STUCK = {"game game/valid_rate": level(0.01)}
FELL = {"eval eval/accuracy": [(0, 0.7), (12, 0.4)]}
SAME = {"eval eval/accuracy": [(0, 0.4), (12, 0.42)]}
LEVEL = {"game game/hops_mean": level(1.5)}
NOTHING = dict.fromkeys(healthy(), [])


@pytest.mark.parametrize(
    ("changes", "headline", "tone"),
    [
        (WON, "The solver has won", FAIR),
        (JUNK, "Junk wins", BAD),
        (FALSE, "Junk wins", BAD),
        (STUCK, "Nobody wins", BAD),
        ({"game game/win_rate": level(0.0)}, "The solver has lost", BAD),
        (FELL, "The solver gets worse", BAD),
        (LEVEL, "The solver learns", GOOD),
        (SAME, "The proposer learns; of the solver it is not certain", FAIR),
        ({**SAME, **LEVEL}, "Unsure", UNSURE),
        (NOTHING, "Nothing was played yet", UNSURE),
    ],
)
def test_each_verdict(changes: dict[str, Any], headline: str, tone: str) -> None:
    said = judged(changes)
    assert said["headline"].startswith(headline) and said["tone"] == tone


def test_what_is_not_certain_is_said_so() -> None:
    said = judged({**SAME, **LEVEL})
    assert "That the solver learned is not certain" in said["sentence"] and "95\u00a0%" not in said["headline"]
    assert card(said, "solver learns")["word"] == card(said, "proposer learns")["word"] == "unsure"
    said = judged({"eval eval/accuracy": [(0, 0.4)]})
    assert card(said, "solver learns")["word"] == "not measured" and "was not measured" in said["sentence"]


def test_junk_and_a_game_that_is_won_leave_nothing_to_learn() -> None:
    said = judged(FALSE)
    assert card(said, "proposer learns")["word"] == "junk" and card(said, "something left to learn")["tone"] == BAD
    assert card(said, "can I trust it")["tone"] == BAD and "of the questions that pass are true" in said["sentence"]
    assert card(judged(WON), "something left to learn")["word"] == "no"
    little = {"game game/no_signal_rate": level(0.87)}
    assert card(judged(little), "something left to learn")["word"] == "little"
    assert card(judged(STUCK), "something left to learn")["word"] == "no"


@pytest.mark.parametrize(
    ("accounts", "changes", "word"),
    [
        ({**ACCOUNTS, "outcomes": {"void/retriever_down": 30}}, {}, "partly"),
        ({**ACCOUNTS, "outcomes": {"void/retriever_down": 300}}, {}, "no"),
        ({**ACCOUNTS, "issued": {"proposer": 100, "solver": 901}}, {}, "no"),
        (ACCOUNTS, {"game audit/label_truth": level(0.8)}, "partly"),
        (ACCOUNTS, {"game audit/label_truth": []}, "not checked"),
        ({}, {}, "not checked"),
    ],
)
def test_what_takes_trust_away(accounts: dict[str, Any], changes: dict[str, Any], word: str) -> None:
    assert card(judged(changes, accounts), "can I trust it")["word"] == word


def test_a_frozen_side_does_not_learn_and_fixed_questions_make_a_reward_tell() -> None:
    cfg = fakes.config(proposer__policy="frozen")
    said = judged({"eval eval/accuracy": [], "solver reward/all": rise(0.3, 0.8)}, cfg=cfg)
    assert card(said, "proposer learns")["word"] == "frozen" and card(said, "solver learns")["word"] == "yes"
    assert said["headline"] == "The solver learns" and "the proposer is frozen" in said["sentence"]


def test_changes_are_between_means_and_have_intervals() -> None:
    assert over_steps("x", [(1, 0.5)]) is None
    single = over_steps("x", [(1, 0.2), (2, 0.8), (3, 0.9)])
    assert single is not None and single.way == 0 and "too few steps" in single.difference()
    points = [(step, 0.0 if step < 6 else 1.0 if step > 7 else 0.5) for step in STEPS]
    change = over_steps("x", points)
    assert change is not None and (change.start, change.end, change.low, change.high) == (0, 1, 1, 1)
    spike = over_steps("x", [(step, 1.0 if step == 12 else 0.2) for step in STEPS])
    assert spike is not None and spike.way == 0, "one step is no rise"
    few = over_evaluations("a", [(0, 0.4), (9, 0.6)], [(0, 10.0), (9, 10.0)])
    many = over_evaluations("a", [(0, 0.4), (9, 0.6)], [(0, 1000.0), (9, 1000.0)])
    assert few is not None and many is not None and (few.way, many.way) == (0, 1)


def test_alarms_last_from_and_to_a_step_and_say_what_to_do() -> None:
    cfg = fakes.config()
    cfg.referee.alarm_patience = 3
    alarms = Alarms(cfg)
    for step in STEPS:
        junk = {"game/win_rate": 0.05, "game/valid_rate": 0.9} if step in (2, 5, 6, 7) else {"game/win_rate": 0.5}
        alarms.see(step, "game", {**junk, "void/judge_down": 2.0 if step == 9 else 0.0})
        alarms.see(step, "solver", {"logprob_mismatch/kl": 1.0 if 4 <= step <= 10 else 0.0})
        alarms.see(step, "eval", {"eval/alarm_form.backwards": float(step == 12)})
    shown = {(role, cause): (first, last) for role, cause, first, last, *_ in alarms.shown()}
    patience = cfg.health.patience
    assert shown == {
        ("game", "junk"): (5, 7),
        ("game", "voids"): (9, 9),
        ("solver", "mismatch"): (3 + patience, 10),
        ("eval", "form: backwards"): (12, 12),
    }
    (mismatch,) = [row for row in alarms.shown() if row[1] == "mismatch"]
    assert "disagree by 1 nats" in mismatch[4] and "compare their dtypes" in mismatch[5]
    for step in (5, 6, 7):  # played again after a resume, and better
        alarms.see(step, "game", {"game/win_rate": 0.5})
    assert ("game", "junk") not in {(role, cause) for role, cause, *_ in alarms.shown()}


def test_each_alarm_names_a_section_that_is_there() -> None:
    cfg = fakes.config()
    page = (DOCS / "symptoms.md").read_text()
    alarms = Alarms(cfg)
    for step in STEPS:
        alarms.see(step, "solver", {"logprob_mismatch/kl": 1.0})
    wheres = [where for *_, where in GAME.values()] + [row[-1] for row in alarms.shown()]
    for where in wheres:
        file, _, section = where.partition(", ")
        assert file == "docs/symptoms.md" and f"## {section}\n" in page
