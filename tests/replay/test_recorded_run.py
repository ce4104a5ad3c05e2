"""A run that was recorded: every episode comes out of its record again, and readers say what they said then."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from recorded import again, expected, unpack
from test_forced_replay import all_same

from ssp.base.episode import EVAL, PROPOSER, SOLVER
from ssp.record.ledger import Ledger
from ssp.record.runfolder import RunFolder
from ssp.selfplay.questions import reader
from ssp.views.board.data import Board
from ssp.views.compare import runs as compared
from ssp.views.compare.runs import Run
from ssp.views.replay.forced import BOUNDS


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return RunFolder(unpack(tmp_path_factory.mktemp("recorded")))


@pytest.fixture(scope="module")
def told() -> Any:
    return expected()


def plain(value: object) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.slow
def test_every_episode_comes_out_of_its_record_again(run: RunFolder) -> None:
    """Ids, mask, drops, searches, end, answer, reward, verdict and log-probs."""
    seen, largest = all_same(run.path)
    assert (seen[PROPOSER], seen[SOLVER], seen[EVAL]) == (32, 30, 21)
    assert seen["proposer verdict"] == 32
    for role in (PROPOSER, SOLVER, EVAL):
        for what in "log-probs ids mask drops searches stopped outcome versions reward queries".split():
            assert seen[f"{role} {what}"] == seen[role], (role, what)
    assert 0 < largest < BOUNDS["float32"] / 5


def test_the_ledger_says_what_it_said(run: RunFolder, told: Any) -> None:
    ledger = Ledger(run.ledger, readonly=True)
    assert (ledger.digest(), ledger.outcomes()) == (told["digest"], told["outcomes"])
    ledger.check()
    ledger.close()


def test_the_bank_says_what_it_said(run: RunFolder, told: Any) -> None:
    found = reader.read(run)
    then = told["bank"]
    for play in (play for record in then for play in record["plays"]):
        del play["checks"]  # which are no more: what was asked before the rule that was broken
    assert plain([asdict(record) for record in found.records]) == then
    assert (found.silent, found.void) == (told["silent"], told["void"])


def test_the_curriculum_says_what_it_said(run: RunFolder, told: Any) -> None:
    assert plain(list(again(run))) == told["curriculum"]


def test_the_board_says_what_it_said(run: RunFolder, told: Any) -> None:
    board = Board(run)
    board.look()
    rows = {(kind, key): value for kind, key, value in board.since(0, None)["rows"]}
    board.close()
    for kind, key, value in told["board"]:
        row = plain(rows[kind, key])
        shown = row[: len(value)] if kind == "questions" else row  # whether there is a transcript came later
        assert shown == value, (kind, key)


def test_a_comparison_says_what_it_said(run: RunFolder, told: Any) -> None:
    found = compared.figures([Run(run, "eval/accuracy_mean123")])
    (one,) = found["runs"]
    del one["folder"], one["seconds"], one["checkpoint"]["folder"]
    then = told["compare"]
    for point in ("start", "end", "best"):
        ours, theirs = one[point].pop("interval"), then["runs"][0][point].pop("interval")  # of another rule
        assert ours["mean"] == pytest.approx(theirs["mean"]) and ours["low"] < ours["mean"] < ours["high"]
    assert plain(found) == then
