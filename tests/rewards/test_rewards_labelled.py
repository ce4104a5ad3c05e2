"""EM, subEM and F1 of answers that a person labelled, and gold answers that must be refused."""

from __future__ import annotations

import pytest

from ssp.base.errors import InputError
from ssp.game import rewards
from ssp.game.rewards import match

# answer, golds, EM, subEM, F1
LABELLED = [
    ("The  U.S.A.", ["usa"], 1, 1, 1),
    ("A-B c", ["ab c"], 1, 1, 1),
    ("10,000", ["10000"], 1, 1, 1),
    ("Paris", ["Paris"], 1, 1, 1),
    ("Paris, France", ["Paris"], 0, 1, 2 / 3),
    ("France", ["Paris"], 0, 0, 0),
    ("The Beatles", ["Beatles"], 1, 1, 1),
    ("Beatles, The", ["The Beatles"], 1, 1, 1),
    ("Obama", ["Barack Obama"], 0, 0, 2 / 3),
    ("Barack Obama", ["Obama"], 0, 1, 2 / 3),
    ("Barack H. Obama", ["Barack Obama"], 0, 0, 0.8),
    ("New York City", ["New York", "NYC"], 0, 1, 0.8),
    ("NYC", ["New York", "NYC"], 1, 1, 1),
    ("Yes.", ["yes"], 1, 1, 1),
    ("yes", ["no"], 0, 0, 0),
    ("yes it is", ["yes"], 0, 1, 0),
    ("no", ["no one"], 0, 0, 0),
    ("", ["Paris"], 0, 0, 0),
    ("1,234.5", ["12345"], 1, 1, 1),
    ("an apple a day", ["apple day"], 1, 1, 1),
    ("Saint-Étienne", ["saintétienne"], 1, 1, 1),
    ("Saint-Etienne", ["Saint-Étienne"], 0, 0, 0),
    ("ＡＢＣ", ["abc"], 0, 0, 0),
    ("café «Le Thé»", ["café le thé"], 0, 0, 1 / 3),
    ("Straße", ["strasse"], 0, 0, 0),
    ("中国 北京", ["北京"], 0, 1, 2 / 3),
    ("İstanbul", ["istanbul"], 0, 0, 0),
    ("July 4, 1776", ["4 July 1776"], 0, 0, 1),
    ("William Shakespeare wrote it", ["Shakespeare"], 0, 1, 0.4),
    ("to be or not to be", ["to be"], 0, 1, 0.5),
    ("C++", ["C#"], 1, 1, 1),
    ("AT&T", ["ATT"], 1, 1, 1),
    ("The The", ["The The Band"], 0, 0, 0),
    ("42 km", ["42"], 0, 1, 2 / 3),
    ("  spaced\tout\n", ["spaced out"], 1, 1, 1),
    ("rock 'n' roll", ["Rock n Roll"], 1, 1, 1),
    ("alpha beta", ["beta alpha", "gamma"], 0, 0, 1),
    ("red green blue", ["red", "green blue"], 0, 1, 0.8),
]


@pytest.mark.covers("SR-30", "SR-31")
@pytest.mark.parametrize(("answer", "golds", "em", "sub_em", "f1"), LABELLED)
def test_labels(answer: str, golds: list[str], em: float, sub_em: float, f1: float) -> None:
    response = f"<think>so</think> <answer>{answer}</answer>"
    for name, value in (("em", em), ("sub_em", sub_em), ("f1", f1)):
        assert rewards.get(name)(response, golds) == pytest.approx(value), name
        assert rewards.get(name)("", golds, answer=answer) == pytest.approx(value), name


@pytest.mark.covers("SR-30", "SR-31")
@pytest.mark.parametrize("name", ["em", "sub_em", "f1", "format_em", "research", "ssrl", "ssp"])
@pytest.mark.parametrize("golds", [["The"], ["Paris", " . "], []])
@pytest.mark.parametrize("response", ["", "<answer></answer>", "<answer>Paris</answer>"])
def test_a_gold_that_normalises_to_nothing_is_refused(name: str, golds: list[str], response: str) -> None:
    """Also where the response alone would decide: a wrong row of the data shows at once."""
    with pytest.raises(InputError, match="gold"):
        rewards.get(name)(response, golds)


@pytest.mark.parametrize(
    ("response", "value"),
    [
        ("<answer> pota </answer>", 1.0),
        ("<search> e </search> <information> x </information> <answer> Pota . </answer> <eos>", 1.0),
        ("<answer> vure </answer>", 0.0),
        ("<answer> pota", 0.0),
        ("<answer> </answer>", 0.0),
        ("", 0.0),
        ("pota", 0.0),
        ("<answer> pota </answer> <answer> vure </answer>", 0.0),
        ("<think> <answer> pota </answer>", 1.0),
        ("<Answer> pota </Answer>", 0.0),
        ("<information> <answer> pota </answer> </information>", 0.0),
        ("<result><answer>pota</answer></result>", 0.0),
        ("<information> not closed <answer>pota</answer>", 1.0),
        ("<ans<result></result>wer>pota</answer>", 0.0),
    ],
)
def test_the_answer_is_the_last_block_that_the_policy_wrote(response: str, value: float) -> None:
    assert rewards.get("em")(response, ["pota"]) == value
    assert rewards.get("em")(response, ["vure", "Pota"]) == max(value, "vure" in response)


def test_what_the_policy_said_is_all_but_closed_observations() -> None:
    assert match.spoken("a<information>b</information>c<result>d</result>e<result>f") == "a c e<result>f"
    assert match.spoken("a<result>b</result>", ["information"]) == "a<result>b</result>"
