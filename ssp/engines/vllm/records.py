"""Slots and turns of a vLLM engine."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from ssp.engines.base import Generation, Sampling


class Source(Protocol):
    """Whose weights a slot uses: the engine, or one of its faces. `lora`: vLLM's name for its adapter."""

    version: int
    lora: Any


@dataclass
class Slot:
    """What a slot has read and written, the seed of its turns, whose weights it uses, the salt of its cache: no block of
    another load is found under it."""

    ids: list[int]
    seed: int
    source: Source
    salt: str
    turns: int = 0
    turn: Turn | None = None


@dataclass(eq=False)
class Turn:
    """A turn under way: what was asked, what has been drawn, the version of each token."""

    name: str
    slot: Slot
    sampling: Sampling
    most: int
    seed: int
    begin: int
    future: Future[Generation] = field(default_factory=Future)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
