"""The audit of a round by an oracle: each figure by hand-made games, its bounds, and who is counted."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import Sink, brief, game

from ssp.base.episode import REPLAYED
from ssp.base.gamespec import Choose, GameSpec, Grading, Play
from ssp.base.played import ANSWERS, ASKS, Game
from ssp.game.games.duel import GAME as DUEL
from ssp.game.games.given import GAME as GIVEN
from ssp.game.games.pay import question
from ssp.selfplay.audit import Audit
from ssp.selfplay.report import Report
from ssp.selfplay.settled import Round
from ssp.telemetry.clock import Clock


class Book:
    """Knows the right answers of some questions, by their text."""

    def __init__(self, **truths: list[str]) -> None:
        self._truths = truths

    def truths(self, question: str) -> list[str] | None:
        return self._truths.get(question)

    def answer(self, question: str) -> str | None:
        truths = self._truths.get(question, [])
        return truths[0] if len(truths) == 1 else None

    def hops(self, question: str) -> int:
        return 2 if question in self._truths else 0

    def is_junk(self, question: str, target: str) -> bool:
        return self.answer(question) != target

    def classes(self, question: str) -> list[str]:
        return ["2hop", "form.backwards"] if question in self._truths else []


BOOK = Book(oslo=["Oslo", "Kristiania"], rome=["Rome"], nothing=[])


def tried(number: int, asked: str, label: str, *attempts: tuple[str, bool | None], **changes: Any) -> Game:
    """A game about a question with its label, and what each attempt answered and how it was judged."""
    made = game(f"g{number}", [right for _, right in attempts], question=asked, target=label, **changes)
    for at, (answer, right) in enumerate(attempts):
        if right is not None:
            made.attempts[at] = brief(made.attempts[at].id, final=answer)
    return made


def refused(number: int, asked: str, label: str, rule: str) -> Game:
    return game(f"g{number}", valid=False, rule=rule, question=asked, target=label)


def test_each_figure_by_hand() -> None:
    games = [
        # a right label: one attempt is right and judged so, one is right in another spelling, one is wrong
        tried(1, "oslo", "oslo", ("the Oslo", True), ("Kristiania", False), ("Bergen", False), ("", None)),
        # a wrong label: one attempt shares it, one knows better
        tried(2, "rome", "Milan", ("Milan", True), ("Rome", False)),
        # nobody can answer it
        tried(3, "nothing", "Milan", ("Milan", True)),
        # nobody can read it
        tried(4, "gibberish", "Paris", ("Paris", True), ("Nice", False)),
        refused(5, "rome", "Rome", "not_answerable"),
        refused(6, "rome", "Milan", "unquoted_evidence"),
        refused(7, "gibberish", "Paris", "unlinked_evidence"),
        refused(8, "rome", "Rome", "leakage"),
        refused(9, "rome", "Rome", "too_few_facts"),
    ]
    assert Audit(DUEL, games, BOOK).figures() == pytest.approx(
        {
            "audit/label_truth": 1 / 3,
            "audit/label_truth_low": 1 / 4,
            "audit/label_truth_high": 2 / 4,
            "game/unread_rate": 1 / 4,
            "game/hops_mean": 6 / 4,
            "game/junk_rate": 1.0,
            "audit/answer_truth": 3 / 6,
            "audit/answer_truth_low": 3 / 8,
            "audit/answer_truth_high": 4 / 8,
            "audit/agreement": 3 / 6,
            "audit/false_agreement": 2 / 6,
            "audit/false_agreement_low": 2 / 8,
            "audit/false_agreement_high": 3 / 8,
            "audit/lost_credit": 2 / 6,
            # of the four that passed and the three that were doubted
            "audit/false_rejection": 1 / 5,
            "audit/false_rejection_low": 1 / 7,
            "audit/false_rejection_high": 2 / 7,
            "game/asked_2hop": 3 / 4,
            "game/asked_form.backwards": 3 / 4,
        }
    )


def test_what_is_all_read_has_no_bounds_and_an_empty_round_no_figures() -> None:
    figures = Audit(DUEL, [tried(1, "rome", "Rome", ("Rome", True))], BOOK).figures()
    assert figures["audit/agreement"] == figures["audit/answer_truth"] == 1 and figures["audit/false_agreement"] == 0
    assert not any(name.endswith(("_low", "_high")) for name in figures)
    assert Audit(DUEL, [], BOOK).figures() == {} == Audit(DUEL, [refused(1, "rome", "x", "leakage")], BOOK).figures()


def test_past_versions_and_voids_count_for_nobody_and_a_replayed_label_once() -> None:
    asked_by_a_past_one = tried(1, "rome", "Milan", ("Milan", True), frozen=ASKS)
    tried_by_a_past_one = tried(2, "rome", "Rome", ("Milan", False), frozen=ANSWERS)
    lost = tried(3, "rome", "Milan", ("Milan", True), valid=False, void_cause="judge_down")
    again = tried(4, "rome", "Milan", ("Milan", True), kind=REPLAYED)
    figures = Audit(DUEL, [asked_by_a_past_one, tried_by_a_past_one, lost, again], BOOK).figures()
    assert figures["audit/label_truth"] == 1, "of the new question that the newest version asked"
    assert figures["audit/false_agreement"] == 1, "of the one attempt of the newest version"


def test_given_questions_have_several_right_labels_and_no_figure_of_proposals() -> None:
    given = tried(1, "rome", "Roma", ("Roma", True), golds=("Roma", "Rome"), proposal=None, kind="given")
    figures = Audit(GIVEN, [given], BOOK).figures()
    assert figures["audit/label_truth"] == 1 and figures["game/unread_rate"] == 0 == figures["audit/false_agreement"]
    assert not {"game/junk_rate", "game/hops_mean", "audit/false_rejection"} & figures.keys()


def test_roles_have_any_name_and_a_label_may_come_late() -> None:
    """A game of `a` and `b` in which nobody proposes a label: what is not labelled is not audited."""
    play = Play("guess", by="b", prompt="solver", fields=question, times=2)
    spec = GameSpec(("b",), (Choose(), play, Grading("grade", of="guess")), {}, answers="guess")
    unlabelled = tried(1, "rome", "", ("Rome", True))
    labelled = tried(2, "rome", "Rome", ("Rome", True), ("Milan", False))
    figures = Audit(spec, [unlabelled, labelled], BOOK).figures()
    assert figures["audit/agreement"] == 0.5 == figures["audit/answer_truth"]
    assert figures["audit/label_truth"] == 1


def test_an_oracle_that_fails_ends_no_run_and_is_told_once() -> None:
    class Broken(Book):
        def truths(self, question: str) -> list[str] | None:
            raise RecursionError("too deep")

    sink = Sink()
    report = Report(sink, Broken(), 1, DUEL)
    games = [tried(1, "rome", "Rome", ("Rome", True))]
    for step in (1, 2):
        report.round(Round(step - 1, Clock(), games), {})
    assert sink.events == ["step 1 has no figures of the world's oracle: too deep"]
