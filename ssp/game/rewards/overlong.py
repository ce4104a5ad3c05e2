"""Overlong shaping: an episode that comes near its token limit earns less."""

from __future__ import annotations


def penalty(tokens: int, most: int, buffer: int) -> float:
    """What is added to the reward of an episode of so many `tokens`: from 0 down to -1, never above 0.

    0 up to `most` - `buffer` tokens, then it falls linearly to -1 at `most` tokens and stays there. `buffer` 0: always 0.
    Source: DAPO, Yu et al. 2025 (arXiv 2503.14476), eq. 13, "soft overlong punishment".
    """
    if buffer <= 0:
        return 0.0
    return max(-1.0, min(0.0, (most - buffer - tokens) / buffer))
