"""Rewards for the form of the response: Search-R1's `format_em`, ReSearch's `research` and SSRL's
`ssrl`. They read the response alone (seeds D12, D13). An end-of-turn token at its end breaks no
form."""

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

_ALL = {"think": "", "search": "", "information": "", "answer": ""}
TAGS = {
    "format_em": _ALL,
    "research": {"think": "", "answer": "", "result": "search"},
    "ssrl": _ALL,
}
"""Reward → the tags that it reads, each with the tag behind which alone it is looked for ("" for
anywhere). Of another protocol's response it would see no form at all."""

_TAG = r"</?(?:think|search|information|answer)>"
_TEXT = rf"(?:(?!{_TAG}).)*+"
_THOUGHT = rf"<think>{_TEXT}</think>\s*"
_ROUND = rf"{_THOUGHT}<search>{_TEXT}</search>\s*<information>{_TEXT}</information>\s*"
_FORM = re.compile(rf"\s*(?:{_ROUND})*{_THOUGHT}<answer>{_TEXT}</answer>\s*", re.DOTALL)
"""Think, search and information any number of times, then think and answer; only white space
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
    if retrieval:
        shown = [normalise(block) for block in blocks(response, "information")]
        for gold in wanted(golds):
            if any(gold in block for block in shown):
                return structure + retrieval
    return structure


GOOD_FORM = 0.1
"""What a well-formed wrong answer earns."""


def research(response: str, golds: Sequence[str], ended: bool = True) -> float:
    """The F1 of the boxed answer, or 0.1 where that is 0; 0 for a broken form, and for a response
    that was cut off (not `ended`). InputError for a gold that normalises to nothing."""
    wanted(golds)
    if not ended or not _boxed_once(response):
        return 0.0
    answer = boxed(blocks(response, "answer")[0])
    return 0.0 if answer is None else token_f1(answer, golds) or GOOD_FORM


def _boxed_once(text: str) -> bool:
    """Whether there are thoughts, all of them closed, one answer with a box, and a result behind
    each search."""
    if not text.count("<think>") == text.count("</think>") > 0:
        return False
    if not text.count("<answer>") == text.count("</answer>") == 1:
        return False
    search = text.find("<search>")
    while search >= 0:
        result = text.find("<result>", search)
        closed = text.find("</result>", result)
        if not search < text.find("</search>", search) < result < closed:
            return False
        search = text.find("<search>", closed)
    return any(BOX in block and "}" in block for block in blocks(text, "answer"))


_PLACEHOLDERS = {
    "think": "your thoughts",
    "search": "your query",
    "information": "your information",
    "answer": "your answer",
}
"""Tag → what a model writes into it that copies the prompt's example."""

_TAGS = re.compile(
    rf"<think></think>(?:<search></search><information></information>|(?!<search>){_TAG})*<answer></answer>"
)
"""A thought first, the answer last, each search followed by its information."""

ENOUGH_THOUGHTS, MOST_THOUGHTS = 2, 8


def ssrl(response: str, golds: Sequence[str], answer_weight: float = 0.9) -> float:
    """`answer_weight` x EM of the last `<answer>` block outside `<information>` + (1 -
    `answer_weight`) x `form`. InputError for a gold that normalises to nothing."""
    right = em(response, golds, handed_in(response, SEARCH_R1))
    return answer_weight * right + (1.0 - answer_weight) * form(response)


def form(response: str) -> float:
    """Score of the form in [0, 1]: with t thoughts and s searches min(1, t/2) min(t, s+1) / max(t,
    s+1), and 0 for more than 8 thoughts or a broken rule. These break one: tags in another order
    than `_TAGS`, any other `<...>`, an empty block, a copied placeholder, a query of several
    lines."""
    text = without_end(response).strip()
    if not text.startswith("<think>") or not text.endswith("</answer>"):
        return 0.0
    # Nothing is searched behind the last ">", so that this is linear.
    tags = re.findall(r"<[^>]+>", text[: text.rfind(">") + 1])
    if not _TAGS.fullmatch("".join(tags)):
        return 0.0
    if any("\n" in query for query in blocks(text, "search")):
        return 0.0
    for tag, placeholder in _PLACEHOLDERS.items():
        for content in blocks(text, tag):
            if not content.strip() or placeholder in content.lower():
                return 0.0
    thoughts = text.count("<think>")
    searches = text.count("<search>")
    if searches != text.count("<information>") or thoughts > MOST_THOUGHTS:
        return 0.0
    steps = searches + 1
    return min(1.0, thoughts / ENOUGH_THOUGHTS) * min(thoughts, steps) / max(thoughts, steps)
