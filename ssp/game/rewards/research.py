"""ReSearch's reward: 0 for a broken form, else 0.1, or the token F1 of the boxed answer when that is above 0."""

from __future__ import annotations

from collections.abc import Sequence

from ssp.game.protocols.calls import BOX, boxed
from ssp.game.rewards.match import token_f1, wanted
from ssp.game.rewards.text import blocks

GOOD_FORM = 0.1
"""What a well-formed wrong answer earns."""


def research(response: str, golds: Sequence[str], ended: bool = True, think_first: bool = False) -> float:
    """0, 0.1, or an F1 in (0, 1].

    `ended`: False for a response that was cut off ("over length"), which earns 0. `think_first`: the answer has to come
    after all the thinking (the original does not look). InputError for a gold that normalises to nothing.
    """
    wanted(golds)
    if not ended or not well_formed(response):
        return 0.0
    if think_first and response.rfind("</think>") > response.find("<answer>"):
        return 0.0
    answer = boxed(blocks(response, "answer")[0])
    return 0.0 if answer is None else token_f1(answer, golds) or GOOD_FORM


def well_formed(text: str) -> bool:
    """As many <think> as </think> and at least one, one answer with a box, and each search followed by its result."""
    if not text.count("<think>") == text.count("</think>") > 0:
        return False
    if not text.count("<answer>") == text.count("</answer>") == 1:
        return False
    at = 0
    while (at := text.find("<search>", at)) >= 0:
        result = text.find("<result>", at)
        closed = text.find("</result>", result)
        if not at < text.find("</search>", at) < result < closed:
            return False
        at = closed
    return any(BOX in block and "}" in block for block in blocks(text, "answer"))
