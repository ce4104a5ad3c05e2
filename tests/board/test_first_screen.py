"""The sentence and the cards of the first screen: each rule, and what is not certain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ssp.config.schema import Config
from ssp.selfplay.health import VALID_RATE, WIN_RATE
from ssp.views.board.alarms import GAME, Alarms
from ssp.views.board.changes import over_evaluations, over_steps
from ssp.views.board.verdict import BAD, DOUBT, FAIR, GIVEN, GOOD, PLAIN, REFUSED, UNSURE, FirstScreen
from tests.selfplay import fakes

DOCS = Path(__file__).parent.parent.parent / "docs"
STEPS = range(1, 13)
LEFT = "left to learn of these questions"
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
        "game audit/false_rejection": level(REFUSED / 2),
    }


def judged(changes: dict[str, Any], accounts: dict[str, Any] = ACCOUNTS, cfg: Config | None = None) -> dict[str, Any]:
    figures = {**healthy(), **changes}
    return FirstScreen(cfg or fakes.config(), lambda role, name: figures.get(f"{role} {name}", []), accounts).shown()


def card(said: dict[str, Any], title: str) -> dict[str, Any]:
    (one,) = [one for one in said["cards"] if one["title"] == title]
    return {**one, "told": [flat(text) for _, text in one["facts"]]}


def flat(text: str) -> str:
    return text.replace("\u00a0", " ")


def test_a_healthy_run_says_who_learned_and_by_how_much() -> None:
    said = judged({})
    assert (said["headline"], said["tone"]) == ("Both sides learn", GOOD)
    sentence = flat(said["sentence"])
    assert sentence == "The solver learned: held-out accuracy +30.0 points; the proposer learned: hops +0.63."
    titles = [one["title"] for one in said["cards"]]
    assert titles == ["solver learns", "proposer learns", LEFT, "can I trust it"]
    assert [one["tone"] for one in said["cards"]] == [GOOD] * 4
    ends, difference, over = card(said, "solver learns")["told"]
    assert ends == "held-out accuracy 40.0 % → 70.0 %" and difference.startswith("+30.0 points, 95 %: +20.")
    assert over == "over 192 questions, one run"
    ends, difference, over = card(said, "proposer learns")["told"]
    assert ends == "hops 1.39 → 2.02" and difference.startswith("+0.63, 95 %: +0.42")
    assert over == "over 5 steps at each end, one run"
    facts = card(said, "can I trust it")["told"]
    assert "0.0 % void: 0 of 1,000 episodes" in facts and "every episode accounted for" in facts
    assert "100.0 % true: 600 of 600 accepted questions in the whole run" in facts
    assert not marked(card(said, "can I trust it"))


def marked(one: dict[str, Any]) -> list[str]:
    """The facts of a card that decide against it; they stand first."""
    tones = [tone in (BAD, FAIR) for tone, _ in one["facts"]]
    assert tones == sorted(tones, reverse=True)
    return one["told"][: sum(tones)]


def test_intervals_say_how_much_they_are_over() -> None:
    items = {"eval eval/items": [(0, 96.0), (12, 1920.0)]}
    assert "over 96 and 1,920 questions, one run" in card(judged(items), "solver learns")["told"]


def test_shares_of_true_questions_are_of_the_end_or_of_the_whole_run_and_say_so() -> None:
    said = judged({"game audit/label_truth": [(step, 0.9 if step < 8 else 0.1) for step in STEPS]})
    assert said["headline"].startswith("Junk wins")
    shares = "43.3 % of all accepted questions are junk, 90.0 % in the last 5 steps"
    assert flat(said["sentence"]).endswith(f"the proposer learned what is no question: {shares}.")
    assert marked(card(said, LEFT)) == ["90.0 % junk (no true answer): accepted questions of the last 5 steps"]
    whole = "43.3 % junk (no true answer): 260 of 600 accepted questions in the whole run"
    assert marked(card(said, "can I trust it")) == [whole]
    single = judged({"game audit/label_truth": [(1, 0.1)]})
    assert "junk, 90.0 % in the last step." in flat(single["sentence"])
    unknown = judged({"game game/accepted": [], "game audit/label_truth": level(0.1)})
    told = card(unknown, "can I trust it")["told"]
    assert "89.5 % junk (no true answer): accepted questions in the whole run" in told


def test_in_a_run_that_cannot_be_trusted_nothing_is_learned_for_certain() -> None:
    lost = {**ACCOUNTS, "issued": {"proposer": 100, "solver": 901}}
    said = judged({}, lost)
    assert said["headline"] == f"Both sides learn, {DOUBT}" and said["tone"] == UNSURE and not said["next"]
    assert marked(card(said, "can I trust it")) == ["episodes lost or counted twice: 1"]
    one = card(said, "proposer learns")
    assert (one["word"], one["tone"], marked(one)) == ("yes", UNSURE, [DOUBT])
    paid = {"eval eval/accuracy": [], "solver reward/all": rise(0.3, 0.8)}
    one = card(judged(paid, lost, fakes.config(proposer__policy="frozen")), "solver learns")
    assert (one["word"], one["tone"], marked(one)) == ("yes", UNSURE, [DOUBT]), "a reward is of the run itself"
    junk = judged(FALSE)
    assert junk["headline"].startswith("Junk wins: ") and junk["tone"] == BAD and DOUBT not in junk["headline"]
    assert card(junk, "proposer learns")["tone"] == BAD
    for untrusted in (said, junk):
        one = card(untrusted, "solver learns")
        assert (one["word"], one["tone"], marked(one)) == ("yes", GOOD, []), "given labels are real"
        assert GIVEN in one["told"]
    frozen = judged({}, lost, fakes.config(proposer__policy="frozen"))
    assert card(frozen, "proposer learns")["facts"] == [[PLAIN, "it is not trained"]]


def test_an_accuracy_that_fell_from_its_best_is_said() -> None:
    points = [(0, 0.4), (6, 0.9), (12, 0.7)]
    items = [(step, 192.0) for step, _ in points]
    said = judged({"eval eval/accuracy": points, "eval eval/items": items})
    one = card(said, "solver learns")
    assert (one["word"], one["tone"], marked(one)) == ("yes", FAIR, ["fell since step 6: 90.0 % → 70.0 %"])
    assert not said["next"]
    few = [(step, 20.0) for step, _ in points]
    assert not marked(card(judged({"eval eval/accuracy": points, "eval eval/items": few}), "solver learns"))
    assert not any("fell since" in fact for fact in card(judged(FELL), "solver learns")["told"])


def test_true_questions_that_are_refused_take_trust_away() -> None:
    one = card(judged({"game audit/false_rejection": level(0.15)}), "can I trust it")
    assert (flat(one["word"]), one["tone"]) == ("yes, but 15.4 % wrongly refused", FAIR)
    assert marked(one) == ["true questions, of those that kept the rules, in the last 5 steps"]


def test_the_next_step_of_a_run_that_learned() -> None:
    assert judged({})["next"] == "repeat it with another seed (seed=6): this is one run"
    hops: dict[str, Any] = {}
    for hop, values in {1: (0.9, 1.0, 1.0), 2: (0.3, 0.5, 0.8), 3: (0.2, 0.3, 0.5)}.items():
        hops[f"eval eval/accuracy_{hop}hop"] = list(zip((0, 6, 12), values, strict=True))
        hops[f"eval eval/items_{hop}hop"] = [(step, 64.0) for step in (0, 6, 12)]
    told = flat(judged(hops)["next"])
    assert told == "train on: accuracy of 3 hops 20.0 % → 50.0 %, its best at the last evaluation"
    still = {**hops, "eval eval/accuracy_3hop": [(0, 0.2), (6, 0.5), (12, 0.5)]}
    assert judged(still)["next"].startswith("train on: accuracy of 2 hops")
    for changes in (WON, FALSE, STUCK, SAME, NOTHING):
        assert not judged({**hops, **changes})["next"]


def test_a_game_that_is_won_asks_for_harder_questions() -> None:
    nexts = []
    for policy in ("own", "frozen"):
        alarms = Alarms(fakes.config(proposer__policy=policy, referee__alarm_patience=1))
        alarms.see(1, "game", {"game/win_rate": 0.99})
        (row,) = alarms.shown()
        nexts.append(row[5])
    assert nexts[0] == "ask harder questions (docs/curriculum.md)"
    assert nexts[1] == "let the proposer learn, it is frozen (proposer.policy=own)"


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
    assert card(said, "proposer learns")["word"] == "junk" and card(said, LEFT)["tone"] == BAD
    assert card(said, "can I trust it")["tone"] == BAD and DOUBT in card(said, "proposer learns")["told"]
    won = card(judged(WON), LEFT)
    assert won["word"] == "no" and marked(won)[0] == "3.6 % of the questions tell attempts apart"
    assert "these questions" in judged(WON)["headline"]
    little = {"game game/no_signal_rate": level(0.87)}
    assert card(judged(little), LEFT)["word"] == "little"
    stuck = card(judged(STUCK), LEFT)
    assert stuck["word"] == "no" and marked(stuck) == ["the referee accepts 1.4 % of the proposals"]
    unlabelled = card(judged({**JUNK, "game audit/label_truth": []}), LEFT)
    assert marked(unlabelled) == ["win rate 5.4 %, healthy from 10 to 90 %"]


@pytest.mark.parametrize(
    ("accounts", "changes", "word"),
    [
        ({**ACCOUNTS, "outcomes": {"void/retriever_down": 30}}, {}, "yes, but 3.0 % void"),
        ({**ACCOUNTS, "outcomes": {"void/retriever_down": 300}}, {}, "no"),
        ({**ACCOUNTS, "issued": {"proposer": 100, "solver": 901}}, {}, "no"),
        (ACCOUNTS, {"game audit/label_truth": level(0.8)}, "yes, but 20.0 % junk (no true answer)"),
        (ACCOUNTS, {"game audit/label_truth": []}, "not checked"),
        ({}, {}, "not checked"),
    ],
)
def test_what_takes_trust_away(accounts: dict[str, Any], changes: dict[str, Any], word: str) -> None:
    assert flat(card(judged(changes, accounts), "can I trust it")["word"]) == word


def test_a_frozen_side_does_not_learn_and_fixed_questions_make_a_reward_tell() -> None:
    cfg = fakes.config(proposer__policy="frozen")
    said = judged({"eval eval/accuracy": [], "solver reward/all": rise(0.3, 0.8)}, cfg=cfg)
    assert card(said, "proposer learns")["word"] == "frozen" and card(said, "solver learns")["word"] == "yes"
    assert said["headline"] == "The solver learns" and "the proposer is frozen" in said["sentence"]


def test_changes_are_between_means_and_have_intervals() -> None:
    assert over_steps("x", [(1, 0.5)]) is None
    single = over_steps("x", [(1, 0.2), (2, 0.8), (3, 0.9)])
    assert single is not None and single.way == 0 and "too few" in single.facts()[1]
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
    for step in (1, 2, 3):  # the labels tell before the win rate does
        alarms.see(step, "game", {"game/win_rate": 0.4, "game/valid_rate": 0.9, "audit/label_truth": 0.3})
    assert [row[:4] for row in alarms.shown() if row[1] == "junk"] == [["game", "junk", 1, 3], ["game", "junk", 5, 7]]
    for step in (1, 5, 6, 7):  # played again after a resume, and better
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
