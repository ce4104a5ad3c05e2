"""A batch of answers: what is decided without asking, what is asked once, what is remembered."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ssp.base.episode import Grade
from ssp.base.errors import InputError
from ssp.game.judge import AnswerJudge, Item


class Asked:
    """Says yes to answers that begin with y, no to n, nothing to others; keeps what it was asked."""

    def __init__(self) -> None:
        self.batches: list[list[str | None]] = []

    def decide(self, items: Sequence[Item]) -> list[Grade]:
        self.batches.append([item.answer for item in items])
        words = {"y": Grade(True, by="llm"), "n": Grade(False, by="llm")}
        return [words.get((item.answer or " ")[0], Grade(None, void_cause="judge_down", by="llm")) for item in items]

    def check(self) -> None:
        raise InputError("rule", "found", "next")


def item(answer: str | None, question: str = "q ?", golds: tuple[str, ...] = ("Pota", "vure")) -> Item:
    return Item(question, golds, answer)


@pytest.mark.covers("SP-03")
def test_exact_matches_and_missing_answers_ask_nobody() -> None:
    asked = Asked()
    judge = AnswerJudge(asked, 10)
    found = judge.decide([item("the pota!"), item("VURE"), item(None), item(""), item(" \n")])
    right, missing = Grade(True, by="exact"), Grade(False, by="rule")
    assert found == [right, right, missing, missing, missing]
    assert asked.batches == [] and judge.decide([]) == []


@pytest.mark.covers("SP-03")
def test_what_is_left_is_asked_in_one_batch_and_keeps_its_place() -> None:
    asked = Asked()
    found = AnswerJudge(asked, 10).decide([item("yes pota"), item("pota"), item("no"), item(None), item("perhaps")])
    assert [d.right for d in found] == [True, True, False, False, None]
    assert [d.by for d in found] == ["llm", "exact", "llm", "rule", "llm"]
    assert found[4] == Grade(None, void_cause="judge_down", by="llm")
    assert asked.batches == [["yes pota", "no", "perhaps"]]


def test_identical_items_of_a_batch_are_asked_once() -> None:
    asked = Asked()
    batch = [item("yes, it"), item("The yes it"), item("yes it", "another ?"), item("YES it"), item("who"), item("who")]
    found = AnswerJudge(asked, 0).decide([*batch, item("yes it", golds=("other",))])
    assert asked.batches == [["yes, it", "The yes it", "yes it", "YES it", "who", "yes it"]]
    assert [d.right for d in found] == [True, None, True, None, None, None, True]


def test_answers_that_differ_in_a_sign_or_a_letter_are_two() -> None:
    asked = Asked()
    given = [
        "A",
        "the",
        "A.",
        "A ",
        "1.5",
        "15",
        "-1.5",
        "vitamin A",
        "vitamin",
        "vitamin  A!",
        "10 mW",
        "10 MW",
        "...",
        "?",
    ]
    AnswerJudge(asked, 99).decide([item(answer) for answer in given])
    assert asked.batches == [["A", "the", "1.5", "15", "-1.5", "vitamin A", "vitamin", "10 mW", "10 MW", "...", "?"]]


@pytest.mark.covers("RS-12")
def test_the_cache_avoids_the_second_call_but_keeps_no_failure() -> None:
    asked = Asked()
    judge = AnswerJudge(asked, 10)
    first = judge.decide([item("yes"), item("no"), item("hm")])
    assert judge.decide([item("yes."), item(" no"), item("hm")]) == first
    assert asked.batches == [["yes", "no", "hm"], ["hm"]]


def test_the_oldest_use_leaves_the_cache_first() -> None:
    asked = Asked()
    judge = AnswerJudge(asked, 2)
    for answer in ("y1", "y2", "y1", "y3", "y1", "y2"):
        judge.decide([item(answer)])
    assert [batch[0] for batch in asked.batches] == ["y1", "y2", "y3", "y2"]
    none = AnswerJudge(asked, 0)
    asked.batches.clear()
    none.decide([item("yes")])
    none.decide([item("yes")])
    assert len(asked.batches) == 2
