"""How the versions of any run stand to each other, as the board shows it."""

from collections.abc import Iterable, Mapping
from typing import Any

from ssp.base.intervals import wilson
from ssp.base.played import ANSWERS, ASKS
from ssp.extras.league import payoff, ratings
from ssp.extras.league.payoff import PayoffTable
from ssp.views.board.parts import short

VERSIONS = 240
"""The newest ones that are shown of a side: a fit takes their number's third power, 1 s here."""


class Standing:
    """Who was right on whose questions in a run, of which the role `answerer` tries them."""

    def __init__(self, answerer: str) -> None:
        self._answerer = answerer
        self.table = PayoffTable()
        self.mixed = 0

    def add(
        self, games: Iterable[Mapping[str, Any]], episodes: Iterable[Mapping[str, Any]]
    ) -> None:
        """Count further settled games, with all their episodes."""
        self.mixed += payoff.count(self.table, games, episodes, self._answerer)

    def shown(self) -> dict[str, Any]:
        """{solvers, proposers: versions; cells: [solver, proposer, questions, attempts, right, low,
        high]; ratings: role → [version, Elo, standard error]; groups: of versions that games
        compare, with as many of them as pairs where each version met one opponent only; mixed:
        games left out; left: versions left out}."""
        answering, asking = self.table.versions(ANSWERS), self.table.versions(ASKS)
        small = PayoffTable()
        small.restore(self.table.state())
        small.keep(set(answering[-VERSIONS:]), set(asking[-VERSIONS:]))
        effect, fitted = small.design_effect(), ratings.fit(small, walk=ratings.WALK)

        cells = []
        groups: list[set[tuple[str, int]]] = []
        for pair in small.pairs():
            questions, graded, right = small.count(*pair)
            low, high = wilson(right / graded, graded / effect)
            cells.append([*pair, questions, graded, right, short(low), short(high)])
            met = {(ANSWERS, pair[0]), (ASKS, pair[1])}
            linked = [group for group in groups if group & met]
            apart = [group for group in groups if not group & met]
            groups = [*apart, met.union(*linked)]

        rated = {}
        for side, name in ((ANSWERS, "solver"), (ASKS, "proposer")):
            rated[name] = [
                [version, *map(short, fitted.elo(side, version))]
                for version in small.versions(side)
            ]
        left = [max(0, len(versions) - VERSIONS) for versions in (answering, asking)]
        return {
            "solvers": small.versions(ANSWERS),
            "proposers": small.versions(ASKS),
            "cells": cells,
            "ratings": rated,
            "groups": len(groups),
            "mixed": self.mixed,
            "left": sum(left),
        }
