"""What an episode earns in the game: the configured reward, with the judge's word and the way the episode ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from ssp.base.episode import SOLVER, Document, Episode, Grade
from ssp.base.errors import Fault, InputError
from ssp.base.tokenlog import Kind, TokenLog
from ssp.config.role import RoleConfig
from ssp.game import rewards
from ssp.game.rewards.score import graded, score

PROMPT = "Write <answer> Beijing </answer>. Question: where?"
RIGHT = "<think>so</think><answer>Paris</answer>"


def episode(response: str, final: str | None, stopped: str = "final", prompt: str = PROMPT) -> Episode:
    text = prompt + response
    return Episode("s1", "g1", SOLVER, 0, text=text, response_at=len(prompt), final=final, stopped=stopped)


@pytest.mark.parametrize(("final", "value"), [("The PARIS.", 1.0), ("Rome", 0.0), (None, 0.0)])
@pytest.mark.parametrize("response", [RIGHT, "<answer>Rome</answer>", ""])
def test_em_is_of_what_was_handed_in_whatever_the_tags(final: str | None, value: float, response: str) -> None:
    assert graded(RoleConfig(reward="em"), episode(response, final), ["Paris"], Grade(False)).reward == value


@pytest.mark.parametrize("name", [name for name in rewards.names() if name != "math"])
def test_the_prompt_is_never_read(name: str) -> None:
    prompts = ("", PROMPT, "<answer>Paris</answer> \\boxed{Paris}", "<|im_start|>assistant\n", "<think>")
    said = [episode("<answer>x</answer>", "x", prompt=prompt) for prompt in prompts]
    assert len({score(name, {}, one, ["Paris"], Grade(False))[0] for one in said}) == 1


@pytest.mark.covers("SP-03")
def test_ssp_pays_what_the_judge_accepts() -> None:
    role, golds = RoleConfig(reward="ssp"), ["Paris"]
    near = episode("<answer>the French capital</answer>", "the French capital")
    assert graded(role, near, golds, Grade(True, by="llm")).reward == 1.0
    assert graded(role, near, golds, Grade(False, by="llm")).reward == 0.0
    spam = episode("<answer>Paris</answer>" * 11, "Paris")
    assert graded(role, spam, golds, Grade(True)).reward == 0.25


@pytest.mark.covers("RS-06")
@pytest.mark.parametrize(("stopped", "value"), [("final", 1.0), ("tokens", 0.0)])
def test_research_pays_only_for_ended_responses(stopped: str, value: float) -> None:
    boxed = "<think>so</think><answer>\\boxed{Paris}</answer>"
    assert score("research", {}, episode(boxed, "Paris", stopped), ["Paris"], Grade(True))[0] == value


def test_an_undecided_answer_is_not_scored() -> None:
    """Law 2: neither the judge's failure nor the reward's own becomes a number."""
    undecided = graded(
        RoleConfig(reward="em"), episode(RIGHT, "Paris"), ["Paris"], Grade(None, void_cause="judge_down", by="llm")
    )
    assert (undecided.right, undecided.void_cause, undecided.by) == (None, "judge_down", "llm")


def test_a_fault_of_the_reward_makes_the_grade_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(response: str, golds: list[str]) -> float:
        raise Fault("scorer_down")

    monkeypatch.setitem(rewards._KNOWN, "broken", broken)
    grade = graded(RoleConfig(reward="broken"), episode(RIGHT, "Paris"), ["Paris"], Grade(True))
    assert (grade.right, grade.void_cause) == (None, "scorer_down")


def test_a_reward_hears_of_no_attempt_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which earns `invalid_reward`: what its turns would have earned made two such attempts a group with spread."""

    def broken(response: str, golds: list[str], turns: list[list[str]]) -> float:
        raise Fault("scorer_down")

    monkeypatch.setitem(rewards._KNOWN, "broken", broken)
    decision = Grade(False, by="rule")
    assert graded(RoleConfig(reward="broken"), episode("x", None, "malformed"), ["Paris"], decision) == decision


@pytest.mark.parametrize("returned", ["float('inf')", "float('nan')", "None", "'1'"])
def test_a_reward_that_returns_no_finite_number_is_refused(
    returned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd_reward.py").write_text(f"def odd(response, golds): return {returned}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "odd_reward", raising=False)
    with pytest.raises(InputError, match="finite"):
        score("odd_reward:odd", {}, episode(RIGHT, "Paris"), ["Paris"], Grade(True))


def test_a_reward_that_raises_is_refused_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loud_reward.py").write_text(
        "import numpy\ndef loud(response, golds):\n    raise KeyError('x')\ndef half(response, golds):\n"
        "    return numpy.float32(0.5)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"KeyError: 'x' \(.*loud_reward.py, line 3\)"):
        score("loud_reward:loud", {}, episode(RIGHT, "Paris"), ["Paris"], Grade(True))
    assert score("loud_reward:half", {}, episode(RIGHT, "Paris"), ["Paris"], Grade(True))[0] == 0.5


def test_observations_are_those_of_the_protocol_at_hand() -> None:
    own = episode("<result> \\boxed{4} </result> <answer> 5 </answer>", "5")
    assert score("math", {}, own, ["4"], Grade(False), ("information",))[0] == 1.0, (
        "under Search-R1 the policy wrote it"
    )
    assert score("math", {}, own, ["4"], Grade(False), ("result",))[0] == 0.0
    assert rewards.get("format_em")("<result><answer>Paris</answer></result>", ["Paris"]) == 0.8


@pytest.mark.parametrize(("name", "value"), [("format_em", 1.0), ("ssrl", 0.95)])
def test_the_answer_of_a_form_is_the_last_block(name: str, value: float) -> None:
    said = episode("<think>t</think><answer>Paris</answer>", "Rome")
    assert score(name, {}, said, ["Paris"], Grade(True))[0] == pytest.approx(value)


def in_turns() -> Episode:
    """Two searches, of which the second was invalid, then a search that found two documents, then the answer."""
    log = TokenLog()
    log.append(Kind.PROMPT, [1, 2])
    made = episode(RIGHT, "Paris")
    made.log = log
    for hits in (1, None, 2, None):
        log.append_model([3, 4], [-0.1, -0.2], 0)
        if hits is not None:
            made.queries.append("q")
            made.hits.append(hits)
            made.asked.append(len(log))
        log.append(Kind.OBSERVATION, [5])
    made.documents = [Document(str(n), f"text {n}") for n in range(3)]
    return made


@pytest.mark.covers("U16")
def test_a_reward_may_pay_each_turn_by_what_it_showed(tmp_path: Path) -> None:
    (tmp_path / "paid.py").write_text(
        "def paid(response, golds, turns, judged, price=0.1):\n"
        "    found = [float(any(g in t for t in shown for g in golds)) - price * bool(shown) for shown in turns]\n"
        "    return [*found[:-1], float(judged)]\n"
        "def short(response, golds, turns):\n    return [1.0]\n"
        "def odd(response, golds, turns):\n    return [0, 0, 0, float('nan')]\n"
    )
    assert in_turns().turns == [["text 0"], [], ["text 1", "text 2"], []]
    early = in_turns()  # an agent that searches before it asks the policy
    early.asked = [0, *early.asked[1:]]
    assert early.turns == in_turns().turns
    role = RoleConfig(reward=f"{tmp_path / 'paid.py'}:paid")
    grade = graded(role, in_turns(), ["text 2"], Grade(True))
    assert grade.turns == (-0.1, 0.0, 0.9, 1.0) and grade.reward == pytest.approx(1.8)
    for name, rule in (("short", "one for each turn"), ("odd", "finite")):
        with pytest.raises(InputError, match=rule):
            graded(RoleConfig(reward=f"{tmp_path / 'paid.py'}:{name}"), in_turns(), ["x"], Grade(True))


@pytest.mark.parametrize(
    ("decision", "value"),
    [
        (Grade(True, score=0.7, by="llm"), 0.7),
        (Grade(False, score=0.2, by="llm"), 0.2),
        (Grade(True), 1.0),
        (Grade(False), 0.0),
    ],
)
def test_graded_pays_the_judge_s_score_or_its_word(decision: Grade, value: float) -> None:
    assert graded(RoleConfig(reward="graded"), episode(RIGHT, "Paris"), ["Rome"], decision).reward == value


def searched(*turns: int, final: str = "Paris") -> Episode:
    """An attempt that asks `turns[i]` queries in turn i and answers in the last turn, and calls another tool beside them."""
    made = episode(f"<answer>{final}</answer>", final)
    made.log = TokenLog()
    made.log.append(Kind.PROMPT, [1])
    for queries in turns:
        made.log.append_model([2, 3], [-1.0, -1.0], 0)
        made.log.append(Kind.OBSERVATION, [4])
        for tool in ["search"] * queries + ["read"]:
            made.queries.append("x")
            made.tools.append(tool)
            made.hits.append(0)
            made.asked.append(len(made.log))
    made.log.append_model([2], [-1.0], 0)
    return made


@pytest.mark.covers("GA-12")
@pytest.mark.parametrize(
    ("turns", "right", "reward", "by_turn"),
    [
        ((1,), True, 0.9, (-0.1, 1.0)),
        ((1, 0, 2), True, 0.7, (-0.1, 0.0, -0.2, 1.0)),
        ((), True, 1.0, (1.0,)),
        ((1, 0, 2), False, 0.0, (0.0, 0.0, 0.0, 0.0)),
    ],
)
def test_a_search_of_a_right_attempt_costs_the_turn_that_asked_for_it(
    turns: tuple[int, ...], right: bool, reward: float, by_turn: tuple[float, ...]
) -> None:
    """Not a call of another tool, and not what a wrong attempt searched, which would be paid for giving up."""
    made = searched(*turns, final="Paris" if right else "Rome")
    role = RoleConfig(reward="em", reward_options={"search_cost": 0.1})
    grade = graded(role, made, ["Paris"], Grade(right))
    assert grade.reward == pytest.approx(reward, abs=1e-12) and grade.turns == pytest.approx(by_turn, abs=1e-12)
    assert graded(RoleConfig(reward="em"), made, ["Paris"], Grade(right)).turns == ()


def test_equal_searches_cost_the_same_whatever_the_turns() -> None:
    """Else rounding would make a group of two with spread."""
    made = [searched(*turns) for turns in ((1, 1, 1), (3,), (1, 2), (2, 0, 1))]
    earned = {score("em", {"search_cost": 0.1}, one, ["Paris"], Grade(True))[0] for one in made}
    assert len(earned) == 1


def test_a_search_costs_beside_a_reward_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_turn(response: str, golds: list[str], turns: list[list[str]], each: float = 0.5) -> list[float]:
        return [each] * (len(turns) - 1) + [1.0]

    monkeypatch.setitem(rewards._KNOWN, "by_turn", by_turn)
    options = {"search_cost": 0.1, "each": 0.25}
    rewards.check("by_turn", options)
    earned, turns = score("by_turn", options, searched(1, 2), ["Paris"], Grade(True))
    assert earned == pytest.approx(1.2) and turns == pytest.approx((0.15, 0.05, 1.0))


@pytest.mark.parametrize(("right", "final"), [(None, "Paris"), (False, None)])
def test_searches_cost_nothing_where_nothing_is_scored(right: bool | None, final: str | None) -> None:
    """A void has no number, and an attempt without an answer earns `invalid_reward`."""
    made = searched(1, 2)
    made.final = final
    role = RoleConfig(reward="em", reward_options={"search_cost": 0.1})
    decision = Grade(right, void_cause="judge_down" if right is None else "")
    assert graded(role, made, ["Paris"], decision) == decision


@pytest.mark.parametrize("cost", [-0.1, "0.1", True, float("nan"), float("inf"), None])
def test_a_cost_is_a_number_of_at_least_0(cost: object) -> None:
    with pytest.raises(InputError, match="search_cost is a finite number of at least 0"):
        rewards.check("em", {"search_cost": cost})


def test_no_reward_has_a_cost_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would be charged once more, or never, without a word."""

    def own(response: str, golds: list[str], search_cost: float = 0.0) -> float:
        return 1.0 - search_cost

    monkeypatch.setitem(rewards._KNOWN, "own", own)
    with pytest.raises(InputError, match="no parameter of a reward"):
        rewards.check("own", {})
