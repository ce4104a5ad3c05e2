"""The small records that pass through the coordinator and its queues: scalars and references, never
token payloads (law 10)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ssp.base.played import Brief, Game, Ref
from ssp.base.values import Seconds, Values
from ssp.learning.scored import Scored


@dataclass(frozen=True)
class PlayOrder:
    """How to play a block. `stem`: the start of its files' names ("": no files). `step`: the update
    whose limits hold (None: the last one's)."""

    temperature: float
    stem: str
    step: int | None = None


@dataclass(frozen=True)
class PlayReport:
    """A worker's report about one block: a brief for each episode, in order, and seconds by
    part."""

    briefs: list[Brief]
    seconds: Seconds


@dataclass(frozen=True)
class Published:
    """Weights of one role at one version: a parcel, and its `serial` at the learner that packed it.

    `past`: a mark for the names of files that a past version plays; "" for the newest version."""

    version: int
    weights: Ref
    serial: int = 0
    past: str = ""


Match = tuple[Published, list[Game]]
"""Weights, and the games in which they play."""


@dataclass(frozen=True)
class TrainBatch:
    """What one learner step consumes: samples, and the blocks that they lie in, by id. `nbytes`
    estimates the payload behind it; `figures` describe the role's whole round."""

    role: str
    step: int
    samples: list[Scored]
    blocks: dict[str, Ref]
    nbytes: int
    figures: Values = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The number of its round, from 0."""
        return self.step - 1
