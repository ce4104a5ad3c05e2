"""The reference systems' golden values: format-aware EM, ReSearch, SSRL, SSP. Replies of a megabyte in linear time."""

from __future__ import annotations

import pytest

from ssp.game import rewards
from ssp.game.rewards.forms import form

T, A = "<think>so</think>", "<answer>Paris</answer>"
SI = "<search>capital</search>\n<information>{}</information>"
S = "<search>capital</search> <information>nothing</information>"
WRONG = "<answer>Rome</answer>"


@pytest.mark.covers("SR-32")
@pytest.mark.parametrize(
    ("response", "options", "value"),
    [
        (f"{T}\n{SI.format('x')}\n{T}\n{A}", {}, 1.0),
        (f"{T}<answer>The Paris.</answer>", {}, 1.0),
        (f"\n {T} {A}\n\n", {}, 1.0),
        (f"{T}{SI.format('It is Paris.')}{T}{WRONG}", {}, 0.2),
        (f"{T}{SI.format('It is Paris.')}{T}{WRONG}", {"retrieval": 0.1}, 0.3),
        (f"{T}{SI.format('It is Lyon.')}{T}{WRONG}", {"retrieval": 0.1}, 0.2),
        (f"{T} I am sure: {A}", {}, 0.8),
        (f"{T}{SI.format('It is Paris.')}{WRONG}", {"retrieval": 0.1}, 0.1),
        (f"{T}{A}<|im_end|>", {}, 1.0),
        (f"{T}{A}\n<|im_end|>\n<|endoftext|>", {}, 1.0),
        (f"{T}{A}<|im_end|>more", {}, 0.8),
        (WRONG, {}, 0.1),
        (A, {}, 0.8),
        ("", {}, 0.0),
        (f"<|im_start|>assistant\n{T}{A}", {}, 0.8),
        (f"{T}{A}{A}", {}, 0.8),
        (f"{T}{T}{A}", {}, 0.8),
        (f"<think>{T}</think>{A}", {}, 0.8),
        (f"{T}<search>q</search>{T}{A}", {}, 0.8),
        (A, {"structure": 0.5}, 0.5),
        (WRONG, {"final": 0.05}, 0.05),
    ],
)
def test_format_em(response: str, options: dict[str, float], value: float) -> None:
    assert rewards.get("format_em")(response, ["Paris"], **options) == pytest.approx(value, abs=1e-12)


def box(answer: str) -> str:
    return f"{T} <search>q</search> <result>\nd\n</result> {T} <answer> It is \\boxed{{{answer}}}. </answer>"


@pytest.mark.covers("RS-06")
@pytest.mark.parametrize(
    ("response", "golds", "options", "value"),
    [
        (box("Obama"), ["Barack Obama"], {}, 2 / 3),
        (box("yes"), ["no"], {}, 0.1),
        (box("yes"), ["yes"], {"ended": False}, 0.0),
        (box("x") + "<answer>\\boxed{x}</answer>", ["x"], {}, 0.0),
        (box("\\text{x}"), ["x"], {}, 0.1),
        (f"<answer>\\boxed{{x}}</answer>{T}", ["x"], {}, 1.0),
        (box("{x} y"), ["x y"], {}, 1.0),
        (box(""), ["x"], {}, 0.1),
        (box("{x"), ["x"], {}, 0.0),
        ("<answer>\\boxed{x}</answer>", ["x"], {}, 0.0),
        (f"{T}<answer>x</answer>", ["x"], {}, 0.0),
        (f"{T}<answer>\\boxed{{x</answer>", ["x"], {}, 0.0),
        (f"{T}\\boxed{{x}}<answer>}}</answer>", ["x"], {}, 0.0),
        (f"{T}<search>q</search><answer>\\boxed{{x}}</answer>", ["x"], {}, 0.0),
        (f"{T}<search>q<result>d</result></search><answer>\\boxed{{x}}</answer>", ["x"], {}, 0.0),
        (f"<think>{T}<answer>\\boxed{{x}}</answer>", ["x"], {}, 0.0),
        (f"{T}</answer>\\boxed{{x}}<answer>", ["x"], {}, 0.0),
    ],
)
def test_research(response: str, golds: list[str], options: dict[str, bool], value: float) -> None:
    assert rewards.get("research")(response, golds, **options) == pytest.approx(value, abs=1e-12)


FORMS = [
    (T + A, 0.5),
    (T + S + A, 0.25),
    (T + S + T + A, 1.0),
    (T + T + A, 0.5),
    (T + S + T + S + T + A, 1.0),
    (T + T + T + S + A, 2 / 3),
    (T + S + S + T + A, 2 / 3),
    ((T + S) * 7 + T + A, 1.0),
    ((T + S) * 8 + T + A, 0.0),
    (T + S.replace("capital", "two\nlines") + T + A, 0.0),
    (T + S.replace("nothing", " ") + T + A, 0.0),
    (f"{T} and {S} then {T} so {A}", 1.0),
    (T.replace("so", "1 < 2 and 3 > 2") + S + T + A, 0.0),
    (T.replace("so", "1 < 2") + A.replace("Paris", "Paris"), 0.0),
    (T.replace("so", "a <b>bold</b> guess") + A, 0.0),
    (T.replace("so", "nothing <> here") + A, 0.5),
    ("Well. " + T + A, 0.0),
    (T + A + " Done.", 0.0),
    (T + A + "<|im_end|>\n", 0.5),
    (A + A, 0.0),
    (T, 0.0),
    (T + S, 0.0),
    (T + "<search>q</search>" + T + A, 0.0),
    (T + "<information>i</information>" + A, 0.0),
    (T.replace("so", "Your Thoughts") + A, 0.0),
    (T + S.replace("capital", "your query") + T + A, 0.0),
    (T + S.replace("nothing", "your information") + T + A, 0.0),
    (T + "<answer>your answer</answer>", 0.0),
    (T.replace("so", "your answer") + A, 0.5),
]


@pytest.mark.covers("SS-02", "SS-03")
@pytest.mark.parametrize(("response", "value"), FORMS)
def test_ssrl(response: str, value: float) -> None:
    right = float("Paris</answer>" in response)
    assert rewards.get("ssrl")(response, ["Paris"]) == pytest.approx(0.9 * right + 0.1 * value, abs=1e-12)
    assert rewards.get("ssrl")(response, ["Rome"]) == pytest.approx(0.1 * value, abs=1e-12)
    assert rewards.get("ssrl")(response, ["Rome"], answer_weight=0.0) == pytest.approx(value, abs=1e-12)


@pytest.mark.covers("SP-03")
@pytest.mark.parametrize(
    ("response", "judged", "value"),
    [
        (A, None, 1.0),
        (A, False, 1.0),
        (WRONG, None, 0.0),
        (WRONG, True, 1.0),
        ("", None, 0.0),
        (A * 10, None, 1.0),
        (A * 11, None, 0.25),
        (WRONG * 11, True, 0.25),
        (A + "</answer>" * 10, None, 0.25),
        ("<answer>" * 5 + "</answer>" * 5 + A, None, 1.0),
    ],
)
def test_ssp(response: str, judged: bool | None, value: float) -> None:
    assert rewards.get("ssp")(response, ["Paris"], judged=judged) == value


MEGABYTE = 1_000_000
TAGS = ["<answer>", "<think>", "<search>", "<information>", "<result>", "<", "\\boxed{", "<eos>"]
MORE = ["</answer>", "</search>", "<>", "</", " ", "{", "}", "a ", "é", "\x00", "<eos> ", "<answer><information>"]
PAIRS = ["<think>a</think>", "<search>q</search><information>i</information>", "<answer>Paris</answer>"]


def long_replies() -> list[str]:
    """Each piece over and over, alone, before a right ending, and inside the answer."""
    ending = "<think>so</think><answer>\\boxed{Paris}</answer>"
    alone = [piece * (MEGABYTE // len(piece)) for piece in (*TAGS, *MORE, *PAIRS)]
    before = [text + ending for text in alone[:5]]
    inside = ["<think>so</think><answer>\\boxed{" + text + "}</answer>" for text in alone[5:8]]
    return [*alone, *before, *inside]


@pytest.mark.timeout(90)
@pytest.mark.parametrize("name", rewards.names())
def test_a_megabyte_of_anything_is_scored(name: str) -> None:
    """A scan that starts anew at each tag would need hours here: the time-out above is the assertion."""
    reward, golds = rewards.get(name), ["Paris", "Paris " * 99]
    assert all(0.0 <= reward(reply, golds) <= 1.0 for reply in long_replies())


def test_long_replies_earn_what_short_ones_do() -> None:
    thought = "<think>" + "so " * (MEGABYTE // 3) + "</think>"
    reply = f"{thought}<answer>\\boxed{{Paris}}</answer>" + "<eos>" * 1000
    assert rewards.get("format_em")(reply, ["boxedParis"]) == 1.0
    assert rewards.get("research")(reply, ["Paris"]) == 1.0
    assert rewards.get("math")(reply, ["Paris"]) == 1.0
    assert form(reply) == 0.5
    steps = "<think>a</think><search>q</search><information>i</information>" * 20_000
    assert rewards.get("format_em")(f"{steps}<think>b</think><answer>Paris</answer>", ["Paris"]) == 1.0
