"""Replies of a megabyte: scored in time linear in their length, whatever they hold."""

from __future__ import annotations

import pytest

from ssp.game import rewards
from ssp.game.rewards.forms import form

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


@pytest.mark.timeout(20)
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
