"""The small records that pass the coordinator and its queues: scalars and references, never token
payloads (law 10)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ssp.base.played import Brief, Game, Ref
from ssp.learning.samples import Sample


@dataclass(frozen=True)
class PlayOrder:
    """How a block is played: temperature, stem of its files ("": none), the update whose limits
    hold (None: the last's)."""

    temperature: float
    stem: str
    step: int | None = None


@dataclass(frozen=True)
class PlayReport:
    """What a worker says about one block: a brief for each episode, in order, and seconds by
    part."""

    briefs: list[Brief]
    seconds: dict[str, float]


@dataclass(frozen=True)
class Published:
    """Weights of one role at one version: a parcel, and its number at the learner that packed it.
    `past`: of a version that is not the newest, its mark in the names of files that are played with
    it."""

    version: int
    weights: Ref
    serial: int = 0
    past: str = ""


Match = tuple[Published, list[Game]]
"""Weights, and the games in which they play."""


@dataclass(frozen=True)
class TrainBatch:
    """What one learner step consumes: samples, and by its id each block that they lie in. `nbytes`
    estimates the payload behind it, `figures` are of the role's whole round."""

    role: str
    step: int
    samples: list[Sample]
    blocks: dict[str, Ref]
    nbytes: int
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The round that it is of, which counts from 0."""
        return self.step - 1
