"""What reads a run's ledger holds one round of it at a time, however long the run was."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from ssp.config.load import to_yaml
from ssp.record.ledger import Ledger
from ssp.record.runfolder import RunFolder
from ssp.selfplay.curriculum.figures import Watch
from ssp.views.board import data
from ssp.views.board.data import Board
from ssp.views.compare.runs import Records
from tests.selfplay import fakes

ROUNDS, EACH = 30, 20


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """30 rounds of 20 games with four attempts each, without transcripts."""
    run = RunFolder(tmp_path_factory.mktemp("long"))
    run.config.write_text(to_yaml(fakes.config()))
    ledger = Ledger(run.ledger)
    for step in range(1, ROUNDS + 1):
        names = [f"g{step * EACH + at:07d}-i1" for at in range(EACH)]
        known = {"round": step, "kind": "proposed", "incarnation": 1}
        ledger.create_games([{"id": name, "target": f"target {name}", **known} for name in names])
        tried = [{"id": f"{name}a{at}", "game_id": name, "attempt": at} for name in names for at in range(4)]
        ledger.create(tried, {"role": "solver", "kind": "attempt", "round": step, "incarnation": 1, "issue": 0})
        ends = [{"id": row["id"], "file": f"solver-{step:06d}.parquet", "row": at} for at, row in enumerate(tried)]
        ledger.advance(ends, {"state": "kept", "outcome": "scored", "reward": 1.0})
        told = {"verdict": "valid", "attempts": 4, "win_rate": 0.5}
        ledger.judge_games([{"id": name, "question": f"which word of {name} is it ?", **told} for name in names])
    ledger.close()
    return run


def peak(job: Callable[[], Any]) -> float:
    """Most MB that Python held for a job beside what it held before."""
    tracemalloc.start()
    try:
        job()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def test_places_of_transcripts_are_read_one_after_the_other(run: RunFolder) -> None:
    ledger = Ledger(run.ledger, readonly=True)
    assert sum(1 for _ in ledger.placed()) == ROUNDS * EACH * 4
    assert peak(lambda: max(ledger.placed())) < 0.1


def test_rounds_come_one_after_the_other_and_are_all_of_the_ledger(run: RunFolder) -> None:
    ledger = Ledger(run.ledger, readonly=True)
    whole = ledger.settled()
    rounds = list(ledger.rounds())
    assert tuple([row for part in rounds for row in part[at]] for at in (0, 1)) == whole
    assert [{game["round"] for game in games} for games, _ in rounds] == [{step} for step in range(1, ROUNDS + 1)]
    known = {(step, 1) for step in range(1, ROUNDS - 1)}
    assert [games for games, _ in ledger.rounds(known)] == [games for games, _ in rounds[-2:]]
    assert peak(lambda: max(len(games) for games, _ in ledger.rounds())) < peak(ledger.settled) / 5


def test_a_run_that_goes_on_reads_a_round_at_a_time_and_no_transcript(run: RunFolder) -> None:
    said: list[str] = []
    watch = Watch(fakes.config(), run, said.append)
    whole = peak(Ledger(run.ledger, readonly=True).settled)
    assert peak(lambda: watch.restart(ROUNDS)) < whole / 4 and not said


def test_comparing_reads_evaluations_alone(run: RunFolder) -> None:
    assert len(Records(run).played()) == ROUNDS * EACH * 4
    assert peak(lambda: Records(run, roles=["eval"])) < peak(lambda: Records(run)) / 3


def test_a_board_shows_the_questions_that_were_asked_last(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "QUESTIONS", 2 * EACH)
    board = Board(run)
    assert peak(board.look) < peak(Ledger(run.ledger, readonly=True).settled)
    shown = [value for (kind, _), (_, value) in board.rows() if kind == "questions"]
    assert {value[5] for value in shown} == {ROUNDS - 1, ROUNDS} and len(shown) == 2 * EACH
    rounds = [value for (kind, _), (_, value) in board.rows() if kind == "rounds"]
    assert sum(value[5] for value in rounds) == ROUNDS * EACH, "all of them count"
