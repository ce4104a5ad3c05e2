"""What an engine is: slots that remember, segments that are sampled, versions that are stamped.

Owns the interface that every generator fulfils (embedded torch, scripted, later vLLM).
Promises, for every implementation: a generation carries exactly the ids that were sampled, their log-probs, and the one
version that drew them; `load` forgets every slot, so that no cache outlives its version (law 1).
Refuses to know text, tags, roles, rewards.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ssp.errors import InvariantError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Sampling:
    """How one segment is drawn: temperature (0 = greedy), most new tokens, ids that end it."""

    temperature: float
    max_tokens: int
    stop_ids: tuple[int, ...]


@dataclass
class Generation:
    """One sampled segment, the stop id included. `stopped` is False when it hit `max_tokens` or the context's end.

    `logprobs` are natural logs under the full vocabulary at the sampling temperature (greedy: at temperature 1).
    """

    ids: list[int]
    logprobs: list[float]
    version: int
    stopped: bool


class Engine(Protocol):
    """Generates for many slots in lock step. Not thread-safe: one caller at a time."""

    version: int

    def load(self, weights: dict[str, np.ndarray], version: int) -> None:
        """Replace the weights (HF parameter names, float32) and forget every slot; later steps on those are errors."""

    def open(self, seeds: list[int]) -> list[int]:
        """New empty slots; what a slot draws depends on its seed, its ids and the weights only."""

    def step(self, slots: list[int], pending: list[list[int]], samplings: Sampling) -> list[Generation]:
        """Append `pending[i]` to slot i, then sample until a stop id or `max_tokens`; one `Sampling` for all slots."""

    def close(self, slots: list[int]) -> None:
        """Forget slots. Slots that `load` already forgot, or closed ones, are fine."""

    def stats(self) -> dict[str, float]:
        """`sampled_tokens`, `prefilled_tokens`, `seconds` inside `step`, all since the last call."""


def check_step(slots: Sequence[int], pending: Sequence[Sequence[int]], known: Container[int]) -> None:
    """InvariantError unless slots are distinct and open, one pending list each. `known`: the open ones."""
    if len(slots) != len(pending) or len(set(slots)) != len(slots):
        raise InvariantError(f"{len(slots)} slots ({len(set(slots))} distinct), {len(pending)} pending lists")
    gone = [slot for slot in slots if slot not in known]
    if gone:
        raise InvariantError(f"slots {gone[:5]} are not open: closed, or forgotten by load()")
