"""The league of a run: pools of both roles, what is known of them, and the next opponent.

An opponent is the newest version or a member of the pool, stays a member until its round is `done`,
and is the same when asked again. The state is bounded: of games, those of members and the newest
`RECENT` versions (the ledger has all)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ssp.base.played import ANSWERS, ASKS
from ssp.base.seeds import generator
from ssp.config.schema import LeagueConfig
from ssp.extras.league.payoff import MatchResult, PayoffTable
from ssp.extras.league.ratings import WALK, Ratings, fit


class Pool:
    """Members are versions, ascending. `every`: versions between two admissions; `size`: of the
    pool, at least 3."""

    def __init__(self, every: int, size: int) -> None:
        self._every, self._size = every, size
        self.members: list[int] = []

    def admits(self, version: int) -> bool:
        """Whether `version` is to become a member."""
        return not self.members or version - self.members[-1] >= self._every

    def admit(self, version: int, playing: Collection[int] = ()) -> list[int]:
        """Take `version` in; the members that left for it, never one of `playing`."""
        self.members.append(version)
        return self.trim(playing)

    def trim(self, playing: Collection[int] = ()) -> list[int]:
        """Let members leave until there are `size`; those that left."""
        left = []
        while len(self.members) > self._size:
            stay = {self.members[0], self.members[-1], *playing}
            inner = zip(self.members, self.members[1:], self.members[2:], strict=False)
            gaps = {member: after - before for before, member, after in inner if member not in stay}
            if not gaps:
                break
            nearest = min(gaps, key=lambda member: gaps[member])
            self.members.remove(nearest)
            left.append(nearest)
        return left


def pfsp(chances: Sequence[float], power: float = 2.0) -> np.ndarray:
    """Probabilities of meeting opponents that one beats with `chances` x (AlphaStar, Vinyals et al.
    2019): proportional to (1 - x) ** power, so those one loses to; even where one beats all for
    certain."""
    lost = 1 - np.asarray(chances, dtype=float)
    if lost.max() > 0:
        # of the most: a high power must not end at 0 / 0
        weights = (lost / lost.max()) ** power
    else:
        weights = np.ones(len(lost))
    return weights / weights.sum()


DECAY = 0.95
"""Weight of a version's games for the chance of the next one."""
DOUBT = 4.0
"""Independent attempts that the ratings' word counts for beside these games."""
RECENT = 64
"""Versions of a role whose games are kept beside the members'."""


class League:
    """Both roles' pools: of who asks, and of who answers. The opponent of one is a version of the
    other."""

    def __init__(self, cfg: LeagueConfig, seed: int, asker: str, answerer: str) -> None:
        self._past, self._power, self._seed = cfg.past, cfg.power, seed
        self._answerer = answerer
        self.other = {asker: answerer, answerer: asker}
        self._side = {asker: ASKS, answerer: ANSWERS}
        self._pools = {role: Pool(cfg.every, cfg.size) for role in self.other}
        self._newest: dict[str, int] = {}
        self._playing: dict[tuple[str, int, int], int | None] = {}
        self._fit: Ratings | None = None
        self.table = PayoffTable()
        # how often the run went back after a collapse: the same draws would lead there again
        self.redraws = 0

    def members(self, role: str) -> list[int]:
        """The frozen versions of `role`, ascending: the weights that must be to be had."""
        return list(self._pools[role].members)

    def newest(self, role: str, version: int) -> None:
        """`version` is the newest of `role`."""
        self._newest[role] = max(version, self._newest.get(role, version))
        self._fit = None

    def wants(self, role: str, version: int) -> bool:
        """Whether `version` is to become a member."""
        return self._pools[role].admits(version)

    def admit(self, role: str, version: int) -> list[int]:
        """`version` becomes a member, since its weights are kept. The members that left."""
        self._fit = None
        return self._pools[role].admit(version, self._held(role))

    def opponent(self, role: str, round_: int, slot: int = 0) -> int | None:
        """The version that the newest of `role` meets in (part `slot` of) a round; None: the newest
        of the other role."""
        key = (role, round_, slot)
        if key not in self._playing:
            again = [self.redraws] if self.redraws else []
            odds = self.odds(role)
            drawn = generator(self._seed, "league", *key, *again).choice(len(odds), p=odds)
            self._playing[key] = [None, *self.members(self.other[role])][drawn]
        return self._playing[key]

    def odds(self, role: str) -> np.ndarray:
        """Probabilities that `role` meets the newest version (first), and each member, of the other
        role."""
        if not self.members(self.other[role]):
            return np.ones(1)
        members = self._past * pfsp(self.chances(role), self._power)
        return np.array([1 - self._past, *members])

    def chances(self, role: str) -> list[float]:
        """How likely the newest version of `role` beats each member of the other role: its own and
        its predecessors' games against that member, the older the less, and `DOUBT` attempts of
        what the ratings expect."""
        newest, answers = self._newest[role], role == self._answerer
        won = dict.fromkeys(self.members(self.other[role]), 0.0)
        played = dict.fromkeys(won, 0.0)
        for answering, asking in self.table.pairs():
            mine, theirs = (answering, asking) if answers else (asking, answering)
            if theirs not in won or mine > newest:
                continue
            _, graded, right = self.table.count(answering, asking)
            weight = DECAY ** (newest - mine)
            won[theirs] += weight * (right if answers else graded - right)
            played[theirs] += weight * graded

        effect, ratings = self.table.design_effect(), self.ratings()
        chances = []
        for member in won:
            if answers:
                expected = ratings.chance(newest, member)
            else:
                expected = 1 - ratings.chance(member, newest)
            known = won[member] / effect + DOUBT * expected
            chances.append(known / (played[member] / effect + DOUBT))
        return chances

    def saw(self, results: Iterable[MatchResult]) -> None:
        """Count the games of a settled round."""
        self.table.add(results)
        keep = {}
        for role, side in self._side.items():
            keep[side] = {*self._pools[role].members, *self.table.versions(side)[-RECENT:]}
        self.table.keep(keep[ANSWERS], keep[ASKS])
        self._fit = None

    def done(self, round_: int) -> dict[str, list[int]]:
        """The round is settled, or given up: its opponents may leave. Role → the members that
        left."""
        self._playing = {key: version for key, version in self._playing.items() if key[1] != round_}
        self._fit = None
        return {role: pool.trim(self._held(role)) for role, pool in self._pools.items()}

    def gain(self, role: str, newer: int, older: int) -> tuple[float, float]:
        """(difference, standard error) in Elo of two versions of `role`."""
        return self.ratings().gain(self._side[role], newer, older)

    def ratings(self) -> Ratings:
        """Of every version that is known here."""
        if self._fit is None:
            also = {self._side[role]: self.members(role) for role in self._pools}
            for role, version in self._newest.items():
                also[self._side[role]].append(version)
            self._fit = fit(self.table, walk=WALK, also=also)
        return self._fit

    def state(self) -> dict[str, Any]:
        """The league as plain data; rounds being played are not part of it, since going back plays
        them again."""
        pools = {role: self.members(role) for role in self.other}
        return {"table": self.table.state(), "pools": pools, "newest": dict(self._newest)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.table.restore(state["table"])
        self._newest, self._playing = dict(state["newest"]), {}
        for role, pool in self._pools.items():
            pool.members = list(state["pools"][role])
        self._fit = None

    def _held(self, role: str) -> set[int]:
        """Members of `role` that somebody is playing against."""
        held = set()
        for (player, _, _), version in self._playing.items():
            if version is not None and self.other[player] == role:
                held.add(version)
        return held
