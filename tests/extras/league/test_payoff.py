"""The payoff table: counts, intervals that know of attempts alike, plain data, and a run's ledger read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ssp.base.episode import SOLVER, Outcome, State
from ssp.base.intervals import wilson
from ssp.base.played import ANSWERS, ASKS
from ssp.extras.league.payoff import MatchResult, PayoffTable, count
from ssp.record.ledger import Ledger


def test_counts_add_up_and_a_stranger_has_none() -> None:
    table = PayoffTable()
    table.add([MatchResult(3, 7, 2, 4), MatchResult(3, 7, 4, 4), MatchResult(5, 7, 0, 3)])
    assert (table.count(3, 7), table.count(5, 7), table.count(5, 9)) == ((2, 8, 6), (1, 3, 0), (0, 0, 0))
    assert (table.versions(ANSWERS), table.versions(ASKS), table.pairs()) == ([3, 5], [7], [(3, 7), (5, 7)])


def test_wilson_is_the_published_interval() -> None:
    """Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29."""
    known = {
        (81, 263): (0.2553, 0.3662),
        (15, 148): (0.0624, 0.1605),
        (0, 20): (0.0, 0.1611),
        (1, 29): (0.0061, 0.1718),
    }
    for (k, n), interval in known.items():
        assert wilson(k / n, n, 1.959964) == pytest.approx(interval, abs=5e-5)


@pytest.mark.parametrize(("spread", "least", "most"), [(0.0, 1.0, 1.15), (30.0, 6.5, 8.0)])
def test_attempts_at_one_question_count_as_few_as_they_tell(spread: float, least: float, most: float) -> None:
    """Alike questions: each attempt is one. Questions that are always or never answered: all eight are one."""
    rng, table = np.random.default_rng(1), PayoffTable()
    for _ in range(400):
        p = 1 / (1 + np.exp(-spread * rng.normal()))
        table.add([MatchResult(1, 1, int(rng.binomial(8, p)), 8)])
    assert least <= table.design_effect() <= most


def test_where_nothing_shows_how_alike_attempts_are_they_count_as_one() -> None:
    table = PayoffTable()
    table.add([MatchResult(1, 1, 3, 8)])
    assert table.design_effect() == 8


def game(
    book: Ledger, name: str, rate: float | None, solvers: list[tuple[int, int]], void: tuple[int, ...] = (), **met: Any
) -> None:
    """One game with an attempt for each pair of lowest and highest solver version; `met`: those of the proposer."""
    book.create_games([{"id": name, "target": "t"}])
    book.judge_games([{"id": name, "verdict": "valid", "attempts": len(solvers), "win_rate": rate}])
    for i, (low, high) in enumerate(solvers):
        book.create([{"id": f"{name}a{i}", "game_id": name, "role": SOLVER, "state": State.RUNNING}])
        lost = {"state": State.VOIDED, "outcome": Outcome.VOID, "cause": "judge_down"}
        ended = {"state": State.KEPT, "outcome": (Outcome.SCORED, Outcome.REJECTED)[i % 2], "cause": "turns"}
        opponent = {"opponent_version_min": met.get("opponent", 4)}
        opponent["opponent_version_max"] = met.get("until", opponent["opponent_version_min"])
        own = {"policy_version_min": low, "policy_version_max": high}
        book.advance([{"id": f"{name}a{i}", **own, **opponent, **(lost if i in void else ended)}])


def test_a_ledger_gives_back_who_met_whom(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "ledger.db")
    game(book, "g1", 0.5, [(2, 2)] * 4)
    game(book, "g2", 2 / 3, [(2, 2)] * 4, void=(1,))  # a void attempt is none
    game(book, "g3", 1.0, [(3, 3)] * 2, opponent=1)  # an old question, asked again
    game(book, "g4", None, [(3, 3)] * 2, void=(0, 1))  # all void: no result
    game(book, "g5", 0.5, [(3, 3), (3, 4)])  # weights changed within it
    game(book, "g6", 0.5, [(3, 3)] * 2, until=5)
    game(book, "g7", 0.5, [(3, 3)] * 2, opponent=None)  # a question of a data set
    game(book, "g8", 0.0, [(-1, -1)] * 2)  # too long a question for a single token of an answer: of no version
    game(book, "g9", 0.0, [(5, 5), (-1, -1)])
    table = PayoffTable()
    mixed = count(table, *book.settled(), SOLVER)
    assert table.state() == [[2, 4, 2, 7, 4, 25, 14, 8], [3, 1, 1, 2, 2, 4, 4, 4], [5, 4, 1, 2, 0, 4, 0, 0]]
    assert mixed == 2
