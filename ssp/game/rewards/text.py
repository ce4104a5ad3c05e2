"""What rewards read out of a response: the answer block, the text without observations or end marks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ssp.game.protocols import template

OBSERVATIONS = ("information", "observation", "result", "tool_response")
"""Tags in which the environment speaks, of all shipped protocols: for who does not know which one was spoken."""

SEARCH_R1 = ("information",)
"""That of Search-R1 and SSRL, in whose forms any other one is text."""

ENDS = (*template.ENDS, "<end_of_turn>", "<|end|>", "</s>", "<eos>")
"""End-of-turn and end-of-text tokens of the model families, as they stand in decoded text."""


def spans(text: str, tag: str) -> Iterator[tuple[int, int]]:
    """Start and end of what stands inside each closed `<tag>` block, from left to right, none overlapping.

    As the lazy pattern `<tag>(.*?)</tag>` finds them: a second opening tag inside a block is part of it.
    """
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
    """The response without its closed observation blocks (tags `observed`): what the policy itself said."""
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
