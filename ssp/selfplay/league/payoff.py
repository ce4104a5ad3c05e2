"""The payoff table: how often each solver version was right on the questions of each proposer
version.

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
"""(solver version, proposer version)."""


@dataclass(frozen=True)
class MatchResult:
    """One valid question: version `answering` was right in `right` of `graded` attempts at what
    version `asking` asked."""

    answering: int
    asking: int
    right: int
    graded: int


class PayoffTable:
    """Counts of every pair of versions that met. The solver is paid k/n of a game, the proposer 1 -
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
        return sorted({pair[(ANSWERS, ASKS).index(side)] for pair in self._cells})

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
        # the same sum after a restore
        for games, n, k, nn, nk, kk in (self._cells[pair] for pair in self.pairs()):
            attempts, squares = attempts + n, squares + nn
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
        self._cells = {
            pair: c for pair, c in self._cells.items() if pair[0] in answering and pair[1] in asking
        }

    def state(self) -> list[list[int]]:
        """The table as plain data, a row a pair: both versions, then its cell."""
        return [[*pair, *self._cells[pair]] for pair in self.pairs()]

    def restore(self, state: Iterable[list[int]]) -> None:
        """The inverse of `state`."""
        self._cells = {(answering, asking): list(cell) for answering, asking, *cell in state}


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
    rates = {game["id"]: game["win_rate"] for game in games if game["win_rate"] is not None}
    played: dict[str, list[Mapping[str, Any]]] = {}
    for row in episodes:
        # ReMax's greedy answer is no attempt, and questions of a data set have no proposer: neither
        # names an opponent.
        known = row["role"] == answerer and row["opponent_version_min"] is not None
        if (
            known
            and row["game_id"] in rates
            and row["outcome"] in (Outcome.SCORED.value, Outcome.REJECTED.value)
        ):
            played.setdefault(row["game_id"], []).append(row)
    mixed = 0
    for game, rows in played.items():
        answering = {row[f"policy_version_{end}"] for row in rows for end in ("min", "max")} - {-1}
        asking = {row[f"opponent_version_{end}"] for row in rows for end in ("min", "max")}
        if len(answering) > 1 or len(asking) > 1:
            mixed += 1
        elif answering:  # else nobody wrote a token: the question leaves no room for an attempt
            table.add(
                [
                    MatchResult(
                        answering.pop(), asking.pop(), round(rates[game] * len(rows)), len(rows)
                    )
                ]
            )
    return mixed
