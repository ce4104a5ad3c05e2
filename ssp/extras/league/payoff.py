"""The payoff table: how often each version that answers was right on the questions of each version
that asks.

Attempts at one question resemble each other, so `n` of them tell less than `n` independent ones
(`design_effect`). A game without a valid question, whose weights changed, or without a graded
attempt with a token is no result (law 2)."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ssp.base.episode import Outcome
from ssp.base.played import ANSWERS, ASKS

FIELDS = 6
"""A cell: questions, attempts n, right k, and over questions the sums of n², nk and k²."""

Pair = tuple[int, int]
"""(answering version, asking version)."""


@dataclass(frozen=True)
class MatchResult:
    """One valid question: version `answering` was right in `right` of `graded` attempts at what
    version `asking` asked."""

    answering: int
    asking: int
    right: int
    graded: int


class PayoffTable:
    """Counts of every pair of versions that met. Who answers is paid k/n of a game, who asks 1 -
    k/n."""

    def __init__(self) -> None:
        self._cells: dict[Pair, list[int]] = {}

    def add(self, results: Iterable[MatchResult]) -> None:
        """Count further games, of one graded attempt or more each."""
        for game in results:
            n, k = game.graded, game.right
            cell = self._cells.setdefault((game.answering, game.asking), [0] * FIELDS)
            for place, value in enumerate((1, n, k, n * n, n * k, k * k)):
                cell[place] += value

    def versions(self, side: str) -> list[int]:
        """Versions of who asks or answers that met anybody, ascending."""
        at = (ANSWERS, ASKS).index(side)
        return sorted({pair[at] for pair in self._cells})

    def pairs(self) -> list[Pair]:
        """The pairs that met, ascending."""
        return sorted(self._cells)

    def count(self, answering: int, asking: int) -> tuple[int, int, int]:
        """(questions, graded attempts, right ones) of a pair; zeros for one that never met."""
        games, graded, right, *_ = self._cells.get((answering, asking), [0] * FIELDS)
        return games, graded, right

    def design_effect(self) -> float:
        """How many attempts tell as much as one independent attempt, at least 1, over the whole
        table (Kish; Rao and Scott 1992): the variance of k/n between questions of a pair, over the
        binomial one. Where no pair has shown both right and wrong answers over two questions, the
        worst, which it never passes: all attempts at a question as one."""
        between = binomial = attempts = squares = 0.0
        # in order: the same sum after a restore
        for pair in self.pairs():
            games, n, k, nn, nk, kk = self._cells[pair]
            attempts += n
            squares += nn
            if games > 1:
                p = k / n
                spread = games / (games - 1) * (kk - 2 * p * nk + p * p * nn)
                between += spread
                # E[p (1 - p)] of what was seen is too low by the variance of p, spread / n²: much
                # where questions are few.
                binomial += n * p * (1 - p) + spread / n

        worst = squares / attempts if attempts else 1.0
        return min(max(1.0, between / binomial), worst) if binomial else worst

    def keep(self, answering: Collection[int], asking: Collection[int]) -> None:
        """Forget every pair of which a version is not named."""
        for pair in self.pairs():
            if pair[0] not in answering or pair[1] not in asking:
                del self._cells[pair]

    def state(self) -> list[list[int]]:
        """The table as plain data, a row a pair: both versions, then its cell."""
        return [[*pair, *self._cells[pair]] for pair in self.pairs()]

    def restore(self, state: Iterable[list[int]]) -> None:
        """The inverse of `state`."""
        self._cells = {(answering, asking): list(cell) for answering, asking, *cell in state}


GRADED = (Outcome.SCORED.value, Outcome.REJECTED.value)


def count(
    table: PayoffTable,
    games: Iterable[Mapping[str, Any]],
    episodes: Iterable[Mapping[str, Any]],
    answerer: str,
) -> int:
    """Add settled games, of which the role `answerer` tries the questions, given the ledger's rows
    of them and of all their episodes (`Ledger.settled`); returns how many it leaves out, because
    weights changed within them. Games rolled back later count: their versions played as they
    were."""
    rates = {game["id"]: game["win_rate"] for game in games}
    attempts: dict[str, list[Mapping[str, Any]]] = {}
    for row in episodes:
        # ReMax's greedy answer is no attempt, and questions of a data set have no asking version:
        # neither names an opponent.
        known = row["role"] == answerer and row["opponent_version_min"] is not None
        if known and row["outcome"] in GRADED and rates.get(row["game_id"]) is not None:
            attempts.setdefault(row["game_id"], []).append(row)

    mixed = 0
    for game, rows in attempts.items():
        # -1: nobody wrote a token, since the question leaves no room for an attempt
        answering = _versions(rows, "policy") - {-1}
        asking = _versions(rows, "opponent")
        if len(answering) > 1 or len(asking) > 1:
            mixed += 1
        elif answering:
            right = round(rates[game] * len(rows))
            table.add([MatchResult(answering.pop(), asking.pop(), right, len(rows))])
    return mixed


def _versions(rows: Iterable[Mapping[str, Any]], whose: str) -> set[int]:
    versions = set()
    for row in rows:
        versions |= {row[f"{whose}_version_min"], row[f"{whose}_version_max"]}
    return versions
