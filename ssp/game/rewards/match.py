"""Rewards that compare the answer with the gold answers, after Search-R1's normalisation and each
the best over the golds. `em` and `sub_em` are Search-R1's (seeds SR-30, SR-31), `f1` is ReSearch's,
`ssp` is SSP's. Each takes the answer that was handed in as `answer` where the caller knows it, and
else reads the last `<answer>` block of the response."""

from collections import Counter
from collections.abc import Iterator, Sequence

from ssp.base.text import normalise, same
from ssp.game.protocols import template

OBSERVATIONS = ("information", "observation", "result", "tool_response")
"""Tags in which the environment speaks, of all shipped protocols: for who does not know which one
was spoken."""

SEARCH_R1 = ("information",)
"""That of Search-R1 and SSRL, in whose forms any other one is text."""

ENDS = (*template.ENDS, "<end_of_turn>", "<|end|>", "</s>", "<eos>")
"""End-of-turn and end-of-text tokens of the model families, as they stand in decoded text."""


def spans(text: str, tag: str) -> Iterator[tuple[int, int]]:
    """Start and end of what stands inside each closed `<tag>` block, as `<tag>(.*?)</tag>` finds
    them, in linear time."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    end = 0
    while (start := text.find(opening, end)) >= 0:
        start += len(opening)
        end = text.find(closing, start)
        if end < 0:
            return
        yield start, end
        end += len(closing)


def blocks(text: str, tag: str) -> list[str]:
    """The contents of all closed `<tag>` blocks, in order."""
    return [text[start:end] for start, end in spans(text, tag)]


def spoken(response: str, observed: Sequence[str] = OBSERVATIONS) -> str:
    """The response without its closed observation blocks (tags `observed`): what the policy itself
    said."""
    for tag in observed:
        kept, at = [], 0
        for start, end in spans(response, tag):
            kept.append(response[at : start - len(tag) - 2])
            at = end + len(tag) + 3
        response = " ".join([*kept, response[at:]])
    return response


def handed_in(response: str, observed: Sequence[str] = OBSERVATIONS) -> str:
    """The last closed `<answer>` block that the policy wrote, stripped; "" when there is none."""
    found = blocks(spoken(response, observed), "answer")
    return found[-1].strip() if found else ""


def without_end(response: str) -> str:
    """The response without the white space and the end tokens (`ENDS`) that trail it."""
    end = len(response)
    while end:
        token = next((token for token in ENDS if response.endswith(token, 0, end)), "")
        if not token and not response[end - 1].isspace():
            break
        end -= len(token) or 1
    return response[:end]


_WHOLE = ("yes", "no", "noanswer")
"""Answers of which a part is worth nothing."""


def em(response: str, golds: Sequence[str], answer: str | None = None) -> float:
    """1 when the answer equals any gold, else 0. InputError for a gold that normalises to
    nothing."""
    return float(same(handed_in(response) if answer is None else answer, golds))


def sub_em(response: str, golds: Sequence[str], answer: str | None = None) -> float:
    """1 when any gold stands somewhere in the answer, else 0. InputError as for `em`."""
    found = normalise(handed_in(response) if answer is None else answer)
    return float(any(gold in found for gold in wanted(golds)))


def f1(response: str, golds: Sequence[str], answer: str | None = None) -> float:
    """Token F1 of the answer, the best over the golds, in [0, 1]. InputError as for `em`."""
    return token_f1(handed_in(response) if answer is None else answer, golds)


def token_f1(answer: str, golds: Sequence[str]) -> float:
    """F1 of the words of `answer` and of a gold, the best over the golds; yes, no and noanswer
    match whole or not."""
    found = normalise(answer)
    ours = Counter(found.split())

    def against(gold: str) -> float:
        if found != gold and (found in _WHOLE or gold in _WHOLE):
            return 0.0
        theirs = Counter(gold.split())
        both = (ours & theirs).total()
        precision, recall = both / max(ours.total(), 1), both / theirs.total()
        return 2 * precision * recall / (precision + recall) if both else 0.0

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
    """1 when the answer matches a gold or `judged` is True, x 0.25 with more than 10 opening or
    closing answer tags; else 0. InputError as for `em`."""
    if not em(response, golds, answer) and not judged:
        return 0.0
    return (
        SPAM_FACTOR
        if max(response.count("<answer>"), response.count("</answer>")) > MOST_TAGS
        else 1.0
    )


def graded(
    response: str, golds: Sequence[str], score: float | None = None, answer: str | None = None
) -> float:
    """The judge's score of the answer, in [0, 1]; without a judge that gives one `em`."""
    return em(response, golds, answer) if score is None else score
