"""`judge.fold`: accents and kinds of apostrophes, alike for the judge, rewards, evaluation and the referee's leakage rule."""

from __future__ import annotations

import pytest

from ssp.base.episode import SOLVER, Episode, Grade
from ssp.config.role import RoleConfig
from ssp.data.readers import Question
from ssp.game import evaluation
from ssp.game.evaluation import Kept, row_of
from ssp.game.evaluation.rows import played_row
from ssp.game.judge import AnswerJudge, Item, plain, same
from ssp.game.referee.words import names
from ssp.game.rewards.score import graded

SAME = [
    *[(f"Nuku{mark}alofa", "Nuku'alofa") for mark in "'‘’‛′`´ʻʼʾʿ＇"],
    ("Nukualofa", "Nukuʻalofa"),
    ("Sao Paulo", "São Paulo"),
    ("Sa\u0303o Paulo", "São Paulo"),
    ("Malmo", "Malmö"),
    ("Lodz", "Łódź"),
    ("Strasse", "Straße"),
    ("Kobenhavn", "København"),
]
OTHER = [("が", "か"), ("पी", "पि"), ("Sao", "Paulo"), ("10²", "102")]


@pytest.mark.parametrize(("answer", "gold"), SAME)
def test_spellings_are_one_where_the_run_says_so(answer: str, gold: str) -> None:
    assert same(answer, [gold], fold=True) and same(gold, [answer], fold=True)
    assert AnswerJudge(fold=True).decide([Item("q", [gold], answer)]) == [Grade(True)]
    question = Question("q", f"Is it {answer} or another town?", (gold,))
    assert row_of(question, answer, fold=True).em == 1.0
    episode = Episode("s", "g", SOLVER, 0, text=f"<answer>{answer}</answer>", final=answer)
    for reward in ("em", "f1", "format_em", "ssp"):
        paid = graded(RoleConfig(reward=reward), episode, [gold], Grade(True), fold=True).reward
        assert paid == (0.8 if reward == "format_em" else 1.0)
    assert names(question.question, gold), "and a question that says it gives it away"


@pytest.mark.parametrize(("answer", "gold"), OTHER)
def test_other_words_stay_others(answer: str, gold: str) -> None:
    assert not same(answer, [gold], fold=True)


def test_without_it_values_are_the_published_ones() -> None:
    assert not same("Sao Paulo", ["São Paulo"]) and same("Nukualofa", ["Nuku'alofa"])
    assert AnswerJudge().decide([Item("q", ["São Paulo"], "Sao Paulo")]) == [Grade(False)]
    assert row_of(Question("q", "?", ("São Paulo",)), "Sao Paulo").em == 0.0
    assert plain("São", fold=False) == "São" and plain("a\u00a0b") == "a\u00a0b"


def test_an_evaluation_folds_rows_votes_and_what_was_found() -> None:
    question = Question("q", "?", ("São Paulo",))
    rows = [row_of(question, said, sample, fold=True) for sample, said in enumerate(("Sao Paulo", "São Paulo", "Rio"))]
    (line,) = evaluation.lines("s", rows, 0, [3], fold=True)
    assert line.estimates["maj@3"].mean == 1.0 and line.estimates["em"].mean == pytest.approx(2 / 3)
    assert rows[0].golden_answers == ["São Paulo"] and rows[0].prediction == "Sao Paulo", "the file says what was said"
    assert (
        Kept(None, "", fold=True) and played_row(question, 0, Episode("e", "g", SOLVER, 0, final="Sao Paulo"), True).em
    )
