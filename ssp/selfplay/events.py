"""What happens in a run, as those who follow it are told: a round that is settled, an update that is published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ssp.base.errors import SspError
from ssp.selfplay.records import Game
from ssp.selfplay.settle import Settled
from ssp.selfplay.versions import Match, Published
from ssp.telemetry.clock import Clock


@dataclass
class Round:
    """One round. `games`: of the data; `refills`: games whose question was asked before, in the pool or in this round.
    `proposer`, `solver`: the newest weights that play in it (no proposer where questions are given). `asked`, `tried`: who
    wrote and who tries which questions. Once it is `settled`, followers add `figures`, and an `alarm` that ends the run."""

    number: int
    clock: Clock
    games: list[Game] = field(default_factory=list)
    refills: list[Game] = field(default_factory=list)
    proposer: Published | None = None
    solver: Published = field(default_factory=lambda: Published(-1, None))
    asked: list[Match] = field(default_factory=list)
    tried: list[Match] = field(default_factory=list)
    settled: Settled = field(default_factory=Settled)
    figures: dict[str, float] = field(default_factory=dict)
    alarm: SspError | None = None

    @property
    def step(self) -> int:
        """The update that it is for."""
        return self.number + 1

    @property
    def played(self) -> list[Game]:
        """All games of the round."""
        return [*self.games, *self.refills]

    @property
    def asked_by(self) -> int | None:
        """The newest proposer's version, None where nobody proposes."""
        return None if self.proposer is None else self.proposer.version


@dataclass
class Update:
    """Update `step` of `learner` is published and committed: the versions that it gave, and the figures, by role."""

    learner: str
    step: int
    versions: Mapping[str, int]
    figures: dict[str, dict[str, float]]
