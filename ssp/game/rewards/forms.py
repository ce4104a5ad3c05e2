"""Rewards that look at the form of the response: Search-R1's `format_em`, ReSearch's `research` and
SSRL's `ssrl`. They read the response alone (seeds D12, D13); an end-of-turn token at its end breaks
no form."""

import re
from collections.abc import Sequence

from ssp.base.text import normalise
from ssp.game.protocols.calls import BOX, boxed
from ssp.game.rewards.match import (
    SEARCH_R1,
    blocks,
    em,
    handed_in,
    spoken,
    token_f1,
    wanted,
    without_end,
)

_TAG = r"</?(?:think|search|information|answer)>"
_FORM = re.compile(
    r"\s*(?:T<search>X</search>\s*<information>X</information>\s*)*T<answer>X</answer>\s*".replace(
        "T", r"<think>X</think>\s*"
    ).replace("X", rf"(?:(?!{_TAG}).)*+"),
    re.DOTALL,
)
"""Think, search and information any number of times, then think and answer; white space only
between the blocks."""


def format_em(
    response: str,
    golds: Sequence[str],
    structure: float = 0.2,
    final: float = 0.1,
    retrieval: float = 0.0,
) -> float:
    """Search-R1 v0.3's `qa_em_format` (seeds SR-32), without partial credit for the answer itself:

        well-formed   answer   right   value
        yes           yes      yes     1
        no            yes      yes     1 - structure
        yes           any      no      structure, plus retrieval when a gold stands in an information block
        no            yes      no      final
        no            no       -       0

    The answer is the last `<answer>` block outside `<information>`. InputError for a gold that
    normalises to nothing."""
    right = em(response, golds, handed_in(response, SEARCH_R1))
    formed = _FORM.fullmatch(without_end(response)) is not None
    if right:
        return 1.0 if formed else 1.0 - structure
    if not formed:
        return final if blocks(spoken(response, SEARCH_R1), "answer") else 0.0
    shown = [normalise(block) for block in blocks(response, "information")] if retrieval else []
    return structure + retrieval * any(gold in block for gold in wanted(golds) for block in shown)


GOOD_FORM = 0.1
"""What a well-formed wrong answer earns."""


def research(response: str, golds: Sequence[str], ended: bool = True) -> float:
    """0, 0.1, or an F1 in (0, 1]; 0 too when the response was cut off (not `ended`). InputError for
    a gold that normalises to nothing."""
    wanted(golds)
    if not ended or not _boxed_once(response):
        return 0.0
    answer = boxed(blocks(response, "answer")[0])
    return 0.0 if answer is None else token_f1(answer, golds) or GOOD_FORM


def _boxed_once(text: str) -> bool:
    """As many <think> as </think> and at least one, one answer with a box, and each search followed
    by its result."""
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


_PLACEHOLDERS = {
    "think": "your thoughts",
    "search": "your query",
    "information": "your information",
    "answer": "your answer",
}
"""The four tags, and what a model that copies the prompt's example writes into each."""

_TAGS = re.compile(
    rf"<think></think>(?:<search></search><information></information>|(?!<search>){_TAG})*<answer></answer>"
)
"""A thought first, the answer last, each search followed by its information."""

ENOUGH_THOUGHTS, MOST_THOUGHTS = 2, 8


def ssrl(response: str, golds: Sequence[str], answer_weight: float = 0.9) -> float:
    """`answer_weight` x EM of the last `<answer>` block outside `<information>` + (1 -
    `answer_weight`) x `form`. InputError for a gold that normalises to nothing."""
    return answer_weight * em(response, golds, handed_in(response, SEARCH_R1)) + (
        1.0 - answer_weight
    ) * form(response)


def form(response: str) -> float:
    """Score of the form in [0, 1]: 0 when a rule is broken, else min(1, t/2) min(t, s+1) / max(t,
    s+1). t and s count the thoughts and the searches; more than 8 thoughts are worth 0. Broken:
    tags in another order than `_TAGS`, any other `<...>`, an empty block or a copied placeholder, a
    query of several lines."""
    text = without_end(response).strip()
    # up to there, so that it is linear
    angles = re.findall(r"<[^>]+>", text[: text.rfind(">") + 1])
    if not (
        text.startswith("<think>")
        and text.endswith("</answer>")
        and _TAGS.fullmatch("".join(angles))
    ):
        return 0.0
    for tag, placeholder in _PLACEHOLDERS.items():
        for content in blocks(text, tag):
            if (
                not content.strip()
                or placeholder in content.lower()
                or (tag == "search" and "\n" in content)
            ):
                return 0.0
    thoughts, searches = text.count("<think>"), text.count("<search>")
    if searches != text.count("<information>") or thoughts > MOST_THOUGHTS:
        return 0.0
    steps = searches + 1
    return min(1.0, thoughts / ENOUGH_THOUGHTS) * min(thoughts, steps) / max(thoughts, steps)
