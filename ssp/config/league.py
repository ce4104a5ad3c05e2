"""The block `league.*` of the configuration: frozen past versions as opponents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ssp.config.fields import choice, number


@dataclass(frozen=True)
class LeagueShares:
    """How often match=mix meets the `newest`, any (`past`), one that beats it (`prioritised`), the `best`; any scale."""

    newest: float = 0.5
    past: float = 0.0
    prioritised: float = 0.5
    best: float = 0.0


@dataclass
class LeagueConfig:
    """Frozen past versions as opponents (docs/league.md). `match`: whom a role meets: self (the newest: no league),
    past (any member), prioritised, best, or mix, by `shares`. `power`: how sharply prioritised prefers whom it loses
    to.

    A version becomes a member `every` updates after the newest member, or when it is surely `margin` Elo above it (0 =
    never for that). `size`: members a role."""

    match: str = choice("self", "self past prioritised best mix")
    shares: ClassVar[LeagueShares] = LeagueShares()
    power: ClassVar[float] = 4.0
    every: int = number(10, 1)
    margin: ClassVar[float] = 100.0
    size: ClassVar[int] = 16

    @property
    def past(self) -> float:
        """Expected share of past versions among whom a role may meet, once there are members."""
        newest = {"self": 1.0, "mix": self.shares.newest / max(1e-9, sum(vars(self.shares).values()))}
        return 1 - newest.get(self.match, 0.0)

    @property
    def asked(self) -> float:
        """Expected share of the questions that the newest proposer writes, and learns from: a past one may have half."""
        return 1 - self.past / 2

    @property
    def twice(self) -> float:
        """Expected share of the questions that are tried twice, by a past solver too: of the newest proposer's."""
        return self.past * self.asked
