"""Predictions of other programs: their forms, what is refused, and that our own rows score the same again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ssp.base.errors import InputError
from ssp.data.readers import Question
from ssp.game import evaluation
from ssp.game.evaluation import ScoredRow, predictions


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.covers("SR-71")
def test_a_folder_of_predictions_gives_each_sets_scores_and_their_average(tmp_path: Path) -> None:
    write(
        tmp_path / "nq.jsonl",
        {"id": "1", "question": "?", "golden_answers": ["Obama"], "pred": "Barack Obama"},
        {"id": "2", "question": "?", "golden_answers": ["Paris", "Lutetia"], "pred": "paris."},
        {"id": "3", "question": "?", "golden_answers": ["42"], "pred": None},
        {"id": "4", "question": "?", "golden_answers": "yes", "pred": "yes it is"},
    )
    write(tmp_path / "popqa.jsonl", {"golden_answers": ["x"], "output": {"pred": "the X"}})
    more = [{"golden_answers": ["x"], "pred": "x", "output": output} for output in ({"retrieval": []}, "x", None)]
    write(tmp_path / "more.jsonl", *more)
    read = predictions.read([tmp_path], {})
    assert {name: len(rows) for name, rows in read.items()} == {"nq": 4, "popqa": 1, "more": 3}
    lines = {name: evaluation.lines(name, rows)[-1] for name, rows in read.items()}
    nq, popqa = lines["nq"].estimates, lines["popqa"].estimates
    assert (nq["em"].mean, nq["sub_em"].mean, nq["f1"].mean) == (1 / 4, 3 / 4, pytest.approx((2 / 3 + 1) / 4))
    assert (popqa["em"].mean, popqa["f1"].mean) == (1, 1)
    assert lines.pop("more").estimates["em"].mean == 1, "another program's output stands beside its prediction"
    assert evaluation.macro(lines).estimates["em"].mean == (1 / 4 + 1) / 2
    assert "searches" not in nq and "recall" not in nq, "nothing is known of how they were found"


def test_predictions_meet_their_questions_by_id(tmp_path: Path) -> None:
    questions = [Question("nq/test/1", "?", ("a1",), 0, "nq", "test"), Question("2", "?", ("b1",))]
    file = write(tmp_path / "x.jsonl", {"id": 2, "prediction": "b1"}, {"id": "1", "prediction": "no"})
    (rows,) = predictions.read([file], {"nq": questions}).values()
    assert [(row.id, row.em) for row in rows] == [("nq/test/1", 0.0), ("2", 1.0)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "1", "prediction": "a"}], "equally many"),
        ([{"id": "1", "prediction": "a"}, {"id": "1", "prediction": "a"}], "unique"),
        ([{"id": "3", "prediction": "a"}], "id is that of a question"),
        ([{"id": "1", "answer": "a"}], "prediction, pred or output.pred"),
        ([{"id": "1", "prediction": 3}], "is a string"),
        ([{"prediction": "a"}], "field id"),
    ],
)
def test_what_is_no_prediction_is_refused(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    file = write(tmp_path / "x.jsonl", *rows)
    with pytest.raises(InputError, match=message):
        predictions.read([file], {"s": [Question("1", "?", ("x1",)), Question("2", "?", ("b1",))]})


def test_files_and_sets_must_go_together(tmp_path: Path) -> None:
    one, two = (write(tmp_path / f"{name}.jsonl", {"id": "1", "prediction": "a1"}) for name in "ab")
    asked = [Question("1", "?", ("a1",))]
    assert set(predictions.read([one, two], {"a": asked, "b": asked})) == {"a", "b"}
    assert [predictions.stem(f"x/{name}") for name in ("a.jsonl", "a.jsonl.gz", "b.v1.parquet", "c.zst", "d")] == [
        "a", "a", "b.v1", "c", "d",
    ]  # fmt: skip
    with pytest.raises(InputError, match="under the same name"):
        predictions.read([one, two], {"a": asked, "c": asked})
    with pytest.raises(InputError, match="different names"):
        predictions.read([one, tmp_path], {})
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="folder of predictions"):
        predictions.read([tmp_path / "empty"], {})
    with pytest.raises(InputError, match="golden_answers"):
        predictions.read([one], {})
    with pytest.raises(InputError, match="keeps a word"):
        predictions.read([write(tmp_path / "c.jsonl", {"golden_answers": ["The"], "pred": "a"})], {})
    with pytest.raises(InputError, match="at least one row"):
        predictions.read([write(tmp_path / "d.jsonl")], {})


@pytest.mark.covers("SR-71")
def test_our_own_rows_score_the_same_again(tmp_path: Path) -> None:
    question = Question("1", "who ?", ("a1",), hops=2, rubric="names the year")
    rows = [
        evaluation.row_of(question, "a1"),
        evaluation.row_of(question, None, sample=1),
        ScoredRow("2", "who ?", ["b1"], None, cause="engine_died"),
        ScoredRow("2", "who ?", ["b1"], "b", sample=1, em=0.0, sub_em=0.0, f1=0.0),
    ]
    evaluation.write_rows(tmp_path / "rows.jsonl", {"s": rows, "t": rows[:1]})
    assert predictions.read([tmp_path / "rows.jsonl"], {}) == {"s": rows, "t": rows[:1]}
