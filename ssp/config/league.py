"""The block `league.*` of the configuration: frozen past versions as opponents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ssp.config.fields import choice, number


@dataclass
class LeagueConfig:
    """Frozen past versions as opponents (docs/league.md). `match`: whom a role meets: self (the newest: no league),
    prioritised (a past one, rather one that it loses to), mix (either, half and half). `power`: how sharply that is
    preferred.

    A version becomes a member `every` updates after the newest member. `size`: members a role."""

    match: str = choice("self", "self prioritised mix")
    power: ClassVar[float] = 4.0
    every: int = number(10, 1)
    size: ClassVar[int] = 16

    @property
    def past(self) -> float:
        """Expected share of past versions among whom a role may meet, once there are members."""
        return {"self": 0.0, "mix": 0.5, "prioritised": 1.0}[self.match]

    @property
    def asked(self) -> float:
        """Expected share of the questions that the newest proposer writes, and learns from: a past one may have half."""
        return 1 - self.past / 2

    @property
    def twice(self) -> float:
        """Expected share of the questions that are tried twice, by a past solver too: of the newest proposer's."""
        return self.past * self.asked
