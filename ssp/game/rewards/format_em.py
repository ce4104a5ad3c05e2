"""Search-R1's format-aware exact match (`qa_em_format`; seeds SR-32).

Owns the shape of a well-formed response and the prices. Promises to read the response alone: it needs neither a chat
marker nor an example answer in the prompt (seeds D12, D13), and takes an end-of-turn token at the end for what it is.
Refuses partial credit for the answer itself.

    well-formed   answer   right   value
    yes           yes      yes     1
    no            yes      yes     1 - structure
    yes           any      no      structure, plus retrieval when a gold stands in an information block
    no            yes      no      final
    no            no       -       0
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ssp.game.judge import normalise
from ssp.game.rewards.match import em, wanted
from ssp.game.rewards.text import SEARCH_R1, blocks, handed_in, spoken, without_end

_TAG = re.compile(r"(</?(?:think|search|information|answer)>)")
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
    formed = well_formed(response if strict_end else without_end(response))
    if right:
        return 1.0 if formed else 1.0 - structure
    if formed:
        return structure + retrieval if retrieval and _retrieved(response, golds) else structure
    return final if (found if strict_answer else blocks(spoken(response, SEARCH_R1), "answer")) else 0.0


def well_formed(text: str) -> bool:
    """think, then (search, information, think) any number of times, then answer; white space only between the blocks."""
    last = _START
    for i, part in enumerate(_TAG.split(text)):
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
