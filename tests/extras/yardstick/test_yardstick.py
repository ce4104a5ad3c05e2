"""The yardstick: which questions it is asked, what is made of its rates, and that nothing of it can harm a run; also with
the real start policy."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from launch import bank
from launch.main import run as command
from ssp.base.episode import PROPOSED, REPLAYED, TRIED
from ssp.base.errors import InputError
from ssp.data.readers import Question
from ssp.extras import yardstick
from ssp.extras.yardstick import chosen, measure
from ssp.record.ledger import Ledger
from ssp.record.runfolder import RunFolder
from ssp.selfplay.curriculum.figures import AskedQuestion
from ssp.views.board import parts
from ssp.views.board.data import Board
from tests.board.boarded import by_hand, looked, played, rows


def asked(at: int, rate: float | None = 0.5, kind: str = PROPOSED) -> AskedQuestion:
    return AskedQuestion(f"g{at}", f"question {at} ?", f"t{at}", kind, rate=rate)


def test_rounds_and_questions_that_are_asked_again() -> None:
    rounds = [(step, [asked(100 * step + at) for at in range(9)]) for step in range(1, 13)]
    rounds[0][1][:] = []  # nothing was accepted
    found = chosen(rounds, 5, 4, seed=3)
    assert list(found) == [2, 5, 10], "the first that has questions, then every fifth"
    assert all(len(part) == 4 and part == sorted(part, key=lambda one: one.game) for part in found.values())
    assert found == chosen(rounds, 5, 4, seed=3) != chosen(rounds, 5, 4, seed=4)
    few = [(1, [asked(1), asked(2, None), asked(3, kind=REPLAYED), asked(4, kind=TRIED)])]
    assert chosen(few, 1, 8, 0) == {1: [asked(1), asked(4, kind=TRIED)]}, "only new ones that were played"


def fixed(rates: dict[str, float | None]) -> Callable[[Sequence[Question]], list[float | None]]:
    return lambda questions: [rates[one.question] for one in questions]


def test_a_round_by_hand() -> None:
    there = {7: [asked(1, 1.0), asked(2, 0.5), asked(3, 0.0)], 9: [asked(4), asked(5)]}
    rates = {"question 1 ?": 0.5, "question 2 ?": 0.0, "question 3 ?": None, "question 4 ?": None, "question 5 ?": 1.0}
    (found,) = measure(there, fixed(rates), {})
    assert (found.step, found.questions) == (7, 2), "of round 9 one rate is left: too few"
    assert (found.own.mean, found.yardstick.mean) == (0.75, 0.25)
    assert found.own[1:] == pytest.approx((0.1979, 0.9733), abs=1e-4), "as of a share of two questions"
    assert found.yardstick[1:] == pytest.approx((1 - 0.9733, 1 - 0.1979), abs=1e-4)


def test_a_round_in_which_all_was_right_has_an_interval() -> None:
    (found,) = measure({1: [asked(at, 1.0) for at in range(8)]}, lambda questions: [0.0] * len(questions), {})
    assert (found.own.high, found.yardstick.low) == (1.0, 0.0)
    assert found.own.low == pytest.approx(0.6756, abs=1e-3) and found.yardstick.high == pytest.approx(0.3244, abs=1e-3)


def test_questions_of_a_data_set_keep_all_their_answers() -> None:
    seen: list[Question] = []
    known = Question("nq/1", "question 1 ?", ("t1", "else"))

    def ask(questions: Sequence[Question]) -> list[float | None]:
        seen.extend(questions)
        return [0.5] * len(questions)

    measure({1: [asked(1), asked(2)]}, ask, {("question 1 ?", "t1"): known})
    assert seen[0] is known and seen[1].answers == ("t2",)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of scripted policies that names the real start policy."""
    return played(tmp_path_factory.mktemp("yardstick") / "run", game__batch="dummy").folder


@pytest.mark.slow
def test_the_command(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """The start policy plays the questions itself: in the run's corpus, twice alike, on no account of the ledger."""
    before = Ledger(run.ledger, readonly=True).digest()
    shown = []
    for _ in range(2):
        assert command(bank.main, [str(run.path), "--yardstick", "1"]) == 0
        shown.append(capsys.readouterr().out)
    assert "yardstick: " in shown[0] and str(run.yardstick) in shown[0] and shown[0] == shown[1]
    found = json.loads(run.yardstick.read_text())
    assert [row[0] for row in found["rounds"]] == [1, 2, 3, 4] and found["attempts"] == 4
    assert all(len(row) == 8 and row[2] <= row[1] <= row[3] and row[5] <= row[4] <= row[6] for row in found["rounds"])
    assert max(row[4] for row in found["rounds"]) > 0.5, "questions of one hop, which it was made to answer"
    assert rows(looked(run))["yardstick", ""] == found
    assert Ledger(run.ledger, readonly=True).digest() == before


def test_what_cannot_be_measured_or_read_is_refused(tmp_path: Path) -> None:
    empty = by_hand(tmp_path / "run", ["one ?"], rates=lambda at: None)
    with pytest.raises(InputError, match="too few"):
        yardstick.leave(empty, fixed({}), "start", 1)
    assert parts.yardstick(empty.yardstick) is None
    empty.yardstick.write_text("{")
    with pytest.raises(InputError, match=r"yardstick.json is JSON"):
        Board(empty).look()
