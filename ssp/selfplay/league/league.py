"""The league of a run: pools of both roles, what is known of them, and the next opponent.

Owns the state that a checkpoint keeps. Promises that an opponent is the newest version or a member of the pool, that it
stays a member until its round is `done`, that asking again for the same round gives the same answer, and that the state is
bounded: of games, those between members and the newest `RECENT` versions are kept (the ledger has all).
Refuses to load weights, to play, and to count a void game.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from ssp.base.episode import PROPOSER, ROLES, SOLVER
from ssp.config.league import LeagueConfig
from ssp.selfplay.league.matchmaking import draw, weights
from ssp.selfplay.league.payoff import PayoffTable, Result
from ssp.selfplay.league.pool import Pool
from ssp.selfplay.league.ratings import Ratings, fit

DECAY = 0.95
"""Weight of a version's games for the chance of the next one."""
DOUBT = 4.0
"""Independent attempts that the ratings' word counts for beside these games."""
WALK = 0.1
"""Of the ratings (`ratings.fit`)."""
RECENT = 64
"""Versions of a role whose games are kept beside the members'."""


class League:
    """Both roles' pools. A solver's opponent is a proposer's version, and the other way round."""

    def __init__(self, cfg: LeagueConfig, seed: int) -> None:
        self._power, self._seed, shares = cfg.power, seed, asdict(cfg.shares)
        self._shares = {"self": shares.pop("newest"), **shares} if cfg.match == "mix" else {cfg.match: 1.0}
        self._pools = {role: Pool(cfg.every, cfg.margin, cfg.size) for role in ROLES}
        self._newest: dict[str, int] = {}
        self._playing: dict[tuple[str, int, int], int | None] = {}
        self._fit: Ratings | None = None
        self._stale, self._odds = True, dict[str, np.ndarray]()
        self.table = PayoffTable()
        self.redraws = 0
        """How often the run went back after a collapse: the same draws would lead there again."""

    def members(self, role: str) -> list[int]:
        """The frozen versions of `role`, ascending: the weights that must be to be had."""
        return list(self._pools[role].members)

    def newest(self, role: str, version: int) -> None:
        """`version` is the newest of `role`."""
        self._newest[role] = max(version, self._newest.get(role, version))
        self._changed()

    def wants(self, role: str, version: int) -> bool:
        """Whether `version`, taken to be as strong as the newest that is known, is to become a member."""
        return self._pools[role].admits(version, lambda old: self.ratings().gain(role, self._newest[role], old))

    def admit(self, role: str, version: int) -> list[int]:
        """`version` becomes a member, since its weights are kept. The members that left."""
        self._changed()
        left = self._pools[role].admit(version, self._strength(role), self._held(role))
        self._changed()
        return left

    def opponent(self, role: str, round_: int, slot: int = 0) -> int | None:
        """The version that the newest of `role` meets in (part `slot` of) a round; None: the newest of the other role."""
        key = (role, round_, slot)
        if key not in self._playing:
            again = [self.redraws] if self.redraws else []
            self._playing[key] = draw(self.members(_other(role)), self.odds(role), self._seed, *key, *again)
        return self._playing[key]

    def odds(self, role: str) -> np.ndarray:
        """Probabilities that `role` meets the newest version (first) and each member of the other role."""
        if role not in self._odds:
            strength = self._strength(_other(role))
            strong = [strength(member) for member in self.members(_other(role))]
            self._odds[role] = weights(self._shares, self.chances(role), strong, self._power)
        return self._odds[role]

    def chances(self, role: str) -> list[float]:
        """How likely the newest version of `role` beats each member of the other role: its own and its predecessors' games
        against that member, the older the less, and `DOUBT` attempts of what the ratings expect."""
        newest, other = self._newest[role], _other(role)
        found = {member: [0.0, 0.0] for member in self.members(other)}
        for pair in self.table.pairs():
            mine, theirs = pair if role == SOLVER else pair[::-1]
            if theirs in found and mine <= newest:
                _, graded, right = self.table.count(*pair)
                weight = DECAY ** (newest - mine)
                found[theirs][0] += weight * (right if role == SOLVER else graded - right)
                found[theirs][1] += weight * graded
        effect, expected = self.table.design_effect(), self.ratings()
        return [
            (won / effect + DOUBT * _expects(expected, role, newest, member)) / (n / effect + DOUBT)
            for member, (won, n) in found.items()
        ]

    def saw(self, results: Iterable[Result]) -> None:
        """Count the games of a settled round."""
        self.table.add(results)
        keep = {role: {*self._pools[role].members, *self.table.versions(role)[-RECENT:]} for role in ROLES}
        self.table.keep(keep[SOLVER], keep[PROPOSER])
        self._changed()

    def done(self, round_: int) -> dict[str, list[int]]:
        """The round is settled, or given up: its opponents may leave. Role → the members that left."""
        self._playing = {key: version for key, version in self._playing.items() if key[1] != round_}
        left = {role: pool.trim(self._strength(role), self._held(role)) for role, pool in self._pools.items()}
        self._changed()
        return left

    def ratings(self) -> Ratings:
        """Of every version that is known here."""
        if self._stale or self._fit is None:
            also = {role: [*pool.members, *self._new(role)] for role, pool in self._pools.items()}
            self._fit = fit(self.table, walk=WALK, also=also)
            self._stale = False
        return self._fit

    def state(self) -> dict[str, Any]:
        """The league as plain data; rounds being played are not part of it, since going back plays them again."""
        pools = {role: self.members(role) for role in ROLES}
        return {"table": self.table.state(), "pools": pools, "newest": dict(self._newest)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.table.restore(state["table"])
        self._newest, self._playing = dict(state["newest"]), {}
        for role, pool in self._pools.items():
            pool.members = list(state["pools"][role])
        self._fit = None
        self._changed()

    def _changed(self) -> None:
        """What was worked out is no longer so."""
        self._stale = True
        self._odds.clear()

    def _strength(self, role: str) -> Callable[[int], float]:
        return lambda version: self.ratings().elo(role, version)[0]

    def _new(self, role: str) -> list[int]:
        return [self._newest[role]] if role in self._newest else []

    def _held(self, role: str) -> set[int]:
        """Members of `role` that somebody is playing against."""
        return {v for (mine, _, _), v in self._playing.items() if v is not None and _other(mine) == role}


def _other(role: str) -> str:
    return SOLVER if role == PROPOSER else PROPOSER


def _expects(ratings: Ratings, role: str, mine: int, theirs: int) -> float:
    """What the ratings say of the chance of `role`'s version `mine`."""
    return ratings.chance(mine, theirs) if role == SOLVER else 1 - ratings.chance(theirs, mine)
