"""Rewards that compare the answer with the gold answers, after Search-R1's normalisation; the best
gold counts. `em` and `sub_em` are Search-R1's (seeds SR-30, SR-31), `f1` is ReSearch's, `ssp` is
SSP's. `answer` is the answer that was handed in; without it the last `<answer>` block of the
response is."""

from collections import Counter
from collections.abc import Iterator, Sequence

from ssp.base.text import normalise, same
from ssp.game.protocols import template

OBSERVATIONS = ("information", "observation", "result", "tool_response")
"""Tags in which the environment speaks, of all shipped protocols, where the protocol is not
known."""

SEARCH_R1 = ("information",)
"""The tag of Search-R1 and SSRL; in their forms the others are text."""

ENDS = (*template.ENDS, "<end_of_turn>", "<|end|>", "</s>", "<eos>")
"""End-of-turn and end-of-text tokens of the model families, in decoded text."""


def spans(text: str, tag: str) -> Iterator[tuple[int, int]]:
    """Start and end of the text in each closed `<tag>` block, as `<tag>(.*?)</tag>` matches it, in
    linear time."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    start = text.find(opening)
    while start >= 0:
        start += len(opening)
        end = text.find(closing, start)
        if end < 0:
            return
        yield start, end
        start = text.find(opening, end + len(closing))


def blocks(text: str, tag: str) -> list[str]:
    """The contents of all closed `<tag>` blocks, in order."""
    return [text[start:end] for start, end in spans(text, tag)]


def spoken(response: str, observed: Sequence[str] = OBSERVATIONS) -> str:
    """What the policy said: the response without its closed observation blocks (tags
    `observed`)."""
    for tag in observed:
        parts = []
        at = 0
        for start, end in spans(response, tag):
            parts.append(response[at : start - len(f"<{tag}>")])
            at = end + len(f"</{tag}>")
        parts.append(response[at:])
        response = " ".join(parts)
    return response


def handed_in(response: str, observed: Sequence[str] = OBSERVATIONS) -> str:
    """The last closed `<answer>` block that the policy wrote, stripped; "" when there is none."""
    answers = blocks(spoken(response, observed), "answer")
    return answers[-1].strip() if answers else ""


def without_end(response: str) -> str:
    """The response without trailing white space and end tokens (`ENDS`)."""
    end = len(response)
    while end:
        token = next((token for token in ENDS if response.endswith(token, 0, end)), "")
        if not token and not response[end - 1].isspace():
            break
        end -= len(token) or 1
    return response[:end]


_WHOLE = ("yes", "no", "noanswer")
"""Answers that match whole or not at all."""


def em(response: str, golds: Sequence[str], answer: str | None = None) -> float:
    """1 when the answer equals any gold, else 0. InputError for a gold that normalises to
    nothing."""
    return float(same(_answer(response, answer), golds))


def sub_em(response: str, golds: Sequence[str], answer: str | None = None) -> float:
    """1 when the answer contains any gold, else 0. InputError as for `em`."""
    said = normalise(_answer(response, answer))
    return float(any(gold in said for gold in wanted(golds)))


def f1(response: str, golds: Sequence[str], answer: str | None = None) -> float:
    """Token F1 of the answer, the best over the golds, in [0, 1]. InputError as for `em`."""
    return token_f1(_answer(response, answer), golds)


def _answer(response: str, answer: str | None) -> str:
    return handed_in(response) if answer is None else answer


def token_f1(answer: str, golds: Sequence[str]) -> float:
    """F1 of the words of `answer` and of a gold, the best over the golds; yes, no and noanswer
    match whole or not at all."""
    said = normalise(answer)
    words = Counter(said.split())

    def against(gold: str) -> float:
        if said != gold and (said in _WHOLE or gold in _WHOLE):
            return 0.0
        gold_words = Counter(gold.split())
        shared = (words & gold_words).total()
        if not shared:
            return 0.0
        precision = shared / words.total()
        recall = shared / gold_words.total()
        return 2 * precision * recall / (precision + recall)

    return max(map(against, wanted(golds)))


def wanted(golds: Sequence[str]) -> list[str]:
    """The golds, normalised. InputError for none at all, and for one that normalises to nothing."""
    same("", golds)
    return [normalise(gold) for gold in golds]


MOST_TAGS = 10
SPAM_FACTOR = 0.25


def ssp(
    response: str, golds: Sequence[str], judged: bool | None = None, answer: str | None = None
) -> float:
    """1 when the answer matches a gold or `judged` is True, else 0; 0.25 instead of 1 with more
    than 10 opening or closing answer tags. InputError as for `em`."""
    if not em(response, golds, answer) and not judged:
        return 0.0
    tags = max(response.count("<answer>"), response.count("</answer>"))
    return SPAM_FACTOR if tags > MOST_TAGS else 1.0


def graded(
    response: str, golds: Sequence[str], score: float | None = None, answer: str | None = None
) -> float:
    """The judge's score of the answer, in [0, 1]; `em` where the judge gives none."""
    return em(response, golds, answer) if score is None else score
