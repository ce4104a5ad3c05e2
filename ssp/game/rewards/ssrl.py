"""SSRL's reward: mostly exact match, a little for the form of a self-searching response (seeds SS-03).

Owns SSRL's rules of form and its score for the balance of thinking and searching. Promises to read the response alone,
with the end-of-turn token left out. Refuses partial credit for the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ssp.game.rewards.match import em
from ssp.game.rewards.text import SEARCH_R1, blocks, handed_in, without_end

_PLACEHOLDERS = {
    "think": "your thoughts",
    "search": "your query",
    "information": "your information",
    "answer": "your answer",
}
"""The four tags, and what a model that copies the prompt's example writes into each."""

_TAG = re.compile(r"</?(?:think|search|information|answer)>")
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
    if not all(_TAG.fullmatch(angle) for angle in _angles(text)):
        return False
    tags = _TAG.findall(text)
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
