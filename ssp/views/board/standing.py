"""Where the versions of a run stand: ratings, payoff table, and whether anything compares them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ssp.base.episode import PROPOSER, SOLVER
from ssp.selfplay.league import ratings
from ssp.selfplay.league.payoff import Pair, PayoffTable, wilson
from ssp.views.board.flow import short

MOST = 240
"""Versions: a fit takes their number's third power, 1 s here."""
WALK = 0.1
"""Of the prior, in logits a version (docs/league.md)."""


def shown(table: PayoffTable, mixed: int) -> dict[str, Any]:
    """{solvers, proposers: versions; cells: [solver, proposer, questions, attempts, right, low, high]; ratings: role →
    [version, Elo, standard error]; groups: of versions that games compare, with as many of them as pairs where each version
    met one opponent only; mixed: games left out; left: versions left out}."""
    both = {role: table.versions(role) for role in (SOLVER, PROPOSER)}
    kept = {role: versions[-MOST:] for role, versions in both.items()}
    small = PayoffTable()
    small.restore(table.state())
    small.keep(set(kept[SOLVER]), set(kept[PROPOSER]))
    pairs, effect = small.pairs(), small.design_effect()
    fitted = ratings.fit(small, walk=WALK)
    cells = []
    for pair in pairs:
        questions, graded, right = small.count(*pair)
        low, high = wilson(right / graded, graded / effect)
        cells.append([*pair, questions, graded, right, short(low), short(high)])
    return {
        "solvers": small.versions(SOLVER),
        "proposers": small.versions(PROPOSER),
        "cells": cells,
        "ratings": {
            role: [[version, *map(short, fitted.elo(role, version))] for version in small.versions(role)]
            for role in both
        },
        "groups": _groups(pairs),
        "mixed": mixed,
        "left": sum(len(both[role]) - len(kept[role]) for role in both),
    }


def _groups(pairs: Sequence[Pair]) -> int:
    """Into how many parts the versions fall, linked by whom they met."""
    groups: list[set[tuple[str, int]]] = []
    for solver, proposer in pairs:
        both = {(SOLVER, solver), (PROPOSER, proposer)}
        linked = [group for group in groups if group & both]
        groups = [group for group in groups if not group & both] + [both.union(*linked)]
    return len(groups)
