"""Rewards that look at the form of the response: Search-R1's `format_em`, ReSearch's `research` and SSRL's `ssrl`.

Owns the rules of form and the prices. Promises to read the response alone: no chat marker and no example answer in the
prompt is needed (seeds D12, D13), and an end-of-turn token at the end is taken for what it is.

`format_em` (Search-R1's `qa_em_format`; seeds SR-32) gives no partial credit for the answer itself:

    well-formed   answer   right   value
    yes           yes      yes     1
    no            yes      yes     1 - structure
    yes           any      no      structure, plus retrieval when a gold stands in an information block
    no            yes      no      final
    no            no       -       0
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ssp.base.text import normalise
from ssp.game.protocols.calls import BOX, boxed
from ssp.game.rewards.match import SEARCH_R1, blocks, em, handed_in, spoken, token_f1, wanted, without_end

_TAG = r"</?(?:think|search|information|answer)>"
_START, _END = "", "</answer>"
_NEXT = {
    _START: ("<think>",),
    "<think>": ("</think>",),
    "</think>": ("<search>", "<answer>"),
    "<search>": ("</search>",),
    "</search>": ("<information>",),
    "<information>": ("</information>",),
    "</information>": ("<think>",),
    "<answer>": (_END,),
    _END: (),
}
"""Which tags may follow a tag."""


def format_em(
    response: str,
    golds: Sequence[str],
    structure: float = 0.2,
    final: float = 0.1,
    retrieval: float = 0.0,
    strict_end: bool = False,
    strict_answer: bool = False,
    answer: str | None = None,
) -> float:
    """A value of the table above; the defaults are Search-R1 v0.3's.

    The answer is the last `<answer>` block outside `<information>`, or with `strict_answer` what was handed in, `answer`.
    `strict_end`: an end-of-turn token after `</answer>` breaks the form, as in the original.
    InputError for a gold that normalises to nothing.
    """
    found = answer or "" if strict_answer else handed_in(response, SEARCH_R1)
    right = em(response, golds, found)
    formed = _alternates(response if strict_end else without_end(response))
    if right:
        return 1.0 if formed else 1.0 - structure
    if formed:
        return structure + retrieval if retrieval and _retrieved(response, golds) else structure
    return final if (found if strict_answer else blocks(spoken(response, SEARCH_R1), "answer")) else 0.0


def _alternates(text: str) -> bool:
    """think, then (search, information, think) any number of times, then answer; white space only between the blocks."""
    last = _START
    for i, part in enumerate(re.split(f"({_TAG})", text)):
        if i % 2:  # a tag
            if part not in _NEXT[last]:
                return False
            last = part
        elif part.strip() and (last == _START or last.startswith("</")):
            return False
    return last == _END


def _retrieved(response: str, golds: Sequence[str]) -> bool:
    shown = [normalise(block) for block in blocks(response, "information")]
    return any(gold in block for gold in wanted(golds) for block in shown)


GOOD_FORM = 0.1
"""What a well-formed wrong answer earns."""


def research(response: str, golds: Sequence[str], ended: bool = True, think_first: bool = False) -> float:
    """0, 0.1, or an F1 in (0, 1].

    `ended`: False for a response that was cut off ("over length"), which earns 0. `think_first`: the answer has to come
    after all the thinking (the original does not look). InputError for a gold that normalises to nothing.
    """
    wanted(golds)
    if not ended or not _boxed_once(response):
        return 0.0
    if think_first and response.rfind("</think>") > response.find("<answer>"):
        return 0.0
    answer = boxed(blocks(response, "answer")[0])
    return 0.0 if answer is None else token_f1(answer, golds) or GOOD_FORM


def _boxed_once(text: str) -> bool:
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


_PLACEHOLDERS = {
    "think": "your thoughts",
    "search": "your query",
    "information": "your information",
    "answer": "your answer",
}
"""The four tags, and what a model that copies the prompt's example writes into each."""

_SEARCH = ["<search>", "</search>", "<information>", "</information>"]
ENOUGH_THOUGHTS, MOST_THOUGHTS = 2, 8


def ssrl(
    response: str,
    golds: Sequence[str],
    answer_weight: float = 0.9,
    strict_answer: bool = False,
    answer: str | None = None,
) -> float:
    """`answer_weight` x EM + (1 - `answer_weight`) x `form`. InputError for a gold that normalises to nothing.

    EM is of the last `<answer>` block outside `<information>`, or with `strict_answer` of what was handed in, `answer`.
    """
    found = answer or "" if strict_answer else handed_in(response, SEARCH_R1)
    return answer_weight * em(response, golds, found) + (1.0 - answer_weight) * form(response)


def form(response: str) -> float:
    """Score of the form in [0, 1]: 0 when a rule is broken, else min(1, t/2) min(t, s+1) / max(t, s+1).

    t and s count the thoughts and the searches; more than 8 thoughts are worth 0.
    """
    text = without_end(response).strip()
    if not _tags_are_right(text) or not _contents_are_real(text):
        return 0.0
    thoughts, searches = text.count("<think>"), text.count("<search>")
    if searches != text.count("<information>") or thoughts > MOST_THOUGHTS:
        return 0.0
    steps = searches + 1
    return min(1.0, thoughts / ENOUGH_THOUGHTS) * min(thoughts, steps) / max(thoughts, steps)


def _tags_are_right(text: str) -> bool:
    """The four tags and no other `<...>`; a thought first, the answer last, each search followed by its information."""
    if not all(re.fullmatch(_TAG, angle) for angle in _angles(text)):
        return False
    tags = re.findall(_TAG, text)
    if not (len(tags) >= 4 and text.startswith("<think>") and text.endswith("</answer>")):
        return False
    if tags[1] != "</think>" or tags[-2] != "<answer>":
        return False
    middle, at = tags[2:-2], 0
    while at < len(middle):
        if middle[at] != "<search>":
            at += 1
        elif middle[at : at + 4] == _SEARCH:
            at += 4
        else:
            return False
    return True


def _contents_are_real(text: str) -> bool:
    """No block is empty or a copied placeholder, and each query stands on one line."""
    for tag, placeholder in _PLACEHOLDERS.items():
        for content in blocks(text, tag):
            if not content.strip() or placeholder in content.lower() or (tag == "search" and "\n" in content):
                return False
    return True


def _angles(text: str) -> Iterator[str]:
    """Everything from a `<` to the next `>`, at least one character between them, none overlapping."""
    end = 0
    while (start := text.find("<", end)) >= 0:
        end = text.find(">", start) + 1
        if not end:
            return
        if end > start + 2:
            yield text[start:end]
