"""Scores of one answer and of several."""

from __future__ import annotations

from itertools import combinations

import pytest

from ssp.game import evaluation
from ssp.game.evaluation import ScoredRow
from ssp.game.evaluation.rows import found
from ssp.game.evaluation.summary import majority, pass_at


def test_retrieval_finds_whole_words() -> None:
    texts = ['"A title"\nThe Rhine is long.', "other"]
    assert found(texts, ["zzz", "the rhine"])
    assert not found(texts, ["hin"]) and not found([], ["rhine"])


@pytest.mark.covers("SS-10")
def test_pass_at_k_is_the_share_of_draws_with_a_right_one() -> None:
    for right in range(9):
        marks = [True] * right + [False] * (8 - right)
        for k in range(1, 9):
            drawn = list(combinations(marks, k))
            assert pass_at(8, right, k) == pytest.approx(sum(map(any, drawn)) / len(drawn))


@pytest.mark.covers("SS-10")
@pytest.mark.parametrize(
    ("answers", "winner"),
    [
        (["A1", "B1", "B1", "C1"], "B1"),
        (["x", "The Rhine!", "x y", "rhine"], "The Rhine!"),
        (["C1", "B1", "B1", "C1"], "C1"),
        ([None, None, "b", None], "b"),
        ([None], None),
        ([], None),
    ],
)
def test_the_majority_votes_on_normalised_answers_and_the_first_seen_breaks_ties(
    answers: list[str | None], winner: str | None
) -> None:
    assert majority(answers) == winner


@pytest.mark.covers("SS-10")
def test_eight_predictions_give_pass_mean_and_majority() -> None:
    said = ["b1", "a1", "A1.", "c1", "b1", "b1", "a1", None]
    samples = [
        ScoredRow("q", "?", ["a1"], answer, sample=i, em=float(answer in ("a1", "A1.")))
        for i, answer in enumerate(said)
    ]
    (line,) = evaluation.lines("set", samples, ks=[1, 2, 4, 8])
    means = {name: estimate.mean for name, estimate in line.estimates.items()}
    assert means["em"] == means["mean@8"] == means["pass@1"] == 3 / 8
    assert means["pass@2"] == pytest.approx(1 - (5 * 4 / 2) / (8 * 7 / 2)) and means["pass@8"] == 1.0
    assert (means["mean@1"], means["mean@2"], means["mean@4"]) == (0, 0.5, 0.5)
    assert (means["maj@1"], means["maj@2"], means["maj@4"], means["maj@8"]) == (0, 0, 1, 0)


def test_a_question_with_too_few_scored_samples_is_in_no_pass_at_k() -> None:
    samples = [
        ScoredRow("q", "?", ["a1"], "a1", em=1.0),
        ScoredRow("q", "?", ["a1"], None, sample=1, cause="engine_died"),
        ScoredRow("r", "?", ["a1"], "x", em=0.0),
        ScoredRow("r", "?", ["a1"], "x", sample=1, em=0.0),
    ]
    (line,) = evaluation.lines("set", samples, ks=[1, 2])
    assert line.estimates["pass@1"].mean == 0.5 and line.estimates["pass@2"].mean == 0.0
