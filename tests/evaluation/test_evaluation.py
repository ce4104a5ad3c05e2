"""Evaluation: tasks, voids, per-hop shares, the interval, the file."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from ssp import evaluation
from ssp.data.readers import Question
from ssp.episode import Episode, Task
from ssp.errors import InvariantError

QUESTIONS = [Question(f"q{i}", f"pota rel{i} ?", (f"o{i}",), hops=1 + i % 3) for i in range(9)]


def play(tasks: list[Task]) -> list[Episode]:
    """Right on 1-hop questions, wrong on 2-hop ones, silent on q2, void on q5, one search each."""
    episodes = []
    for task in tasks:
        i = int(task.id.rsplit("q", 1)[1])
        episode = Episode(task.id, task.game, task.role, task.attempt, final=f"o{i}" if i % 3 == 0 else "zzz")
        episode.queries = ["pota"]
        if i == 2:
            episode.final = None
        if i == 5:
            episode.void("retriever_down")
        if i == 8:
            episode.final = "O8 ."
        episodes.append(episode)
    return episodes


def test_voids_leave_the_estimate_and_silence_is_wrong() -> None:
    result = evaluation.evaluate(play, QUESTIONS, seed=0, corpus="c", prefix="eval")
    summary = result.summary
    assert summary["items"] == 8 and summary["void"] == 1
    assert summary["accuracy_1hop"] == 1.0 and summary["accuracy_2hop"] == 0.0
    assert summary["accuracy_3hop"] == 0.5 and summary["items_3hop"] == 2
    assert summary["accuracy"] == 4 / 8
    assert summary["accuracy_mean123"] == pytest.approx(0.5)
    assert summary["stderr"] == pytest.approx(math.sqrt(0.25 / 8))
    assert summary["stderr_3hop"] == pytest.approx(math.sqrt(0.25 / 2))
    assert summary["searches"] == 1.0
    assert [row.correct for row in result.rows][5] is None and result.rows[5].cause == "retriever_down"
    assert result.rows[2].answer is None and result.rows[2].correct is False


def test_nothing_scored_means_no_estimate() -> None:
    def lost(tasks: list[Task]) -> list[Episode]:
        episodes = [Episode(task.id, task.game, task.role, 0) for task in tasks]
        for episode in episodes:
            episode.void("engine_died")
        return episodes

    summary = evaluation.evaluate(lost, QUESTIONS, seed=0, corpus="c", prefix="eval").summary
    assert summary == {"items": 0.0, "void": 9.0}
    assert evaluation.summarise([]) == {"items": 0.0, "void": 0.0}


def test_questions_without_hops_give_only_the_whole() -> None:
    row = evaluation.Row("q", "q ?", ["o"], 0, "o", True, 1, "final", "", "")
    assert set(evaluation.summarise([row])) == {"items", "void", "searches", "accuracy", "stderr"}


def test_tasks_depend_on_seed_and_question_only() -> None:
    one = evaluation.make_tasks(QUESTIONS, 7, "world:heldout", "eval/held")
    two = evaluation.make_tasks(QUESTIONS[::-1], 7, "world:heldout", "eval/held")
    assert one == two[::-1]
    assert one[0].id == "eval/held/q0" and one[0].corpus == "world:heldout" and one[0].role == "solver"
    assert len({task.seed for task in one}) == len(one)
    assert one[0].seed != evaluation.make_tasks(QUESTIONS, 8, "world:heldout", "eval/held")[0].seed


def test_select_takes_the_first_of_each_hop() -> None:
    assert [q.id for q in evaluation.select(QUESTIONS, 2)] == ["q0", "q1", "q2", "q3", "q4", "q5"]
    assert evaluation.select(QUESTIONS, 0) == []


def test_rows_must_match() -> None:
    with pytest.raises(InvariantError):
        evaluation.make_rows(QUESTIONS, [], [])


def test_the_first_set_has_no_name_in_the_metrics() -> None:
    assert evaluation.metrics({"accuracy": 0.5}) == {"eval/accuracy": 0.5}
    assert evaluation.metrics({"accuracy_1hop": 0.5}, "train") == {"eval/train/accuracy_1hop": 0.5}


@pytest.mark.parametrize(
    ("share", "items", "low", "high"), [(0.5, 100, 0.404, 0.596), (0.0, 100, 0.0, 0.037), (1.0, 20, 0.839, 1.0)]
)
def test_wilson_interval(share: float, items: float, low: float, high: float) -> None:
    assert evaluation.interval(share, items) == pytest.approx((low, high), abs=1e-3)


def test_rows_are_written_whole(tmp_path: Path) -> None:
    result = evaluation.evaluate(play, QUESTIONS, seed=0, corpus="c", prefix="eval")
    path = tmp_path / "deep" / "rows.jsonl"
    evaluation.write_rows(path, {"held": result.rows, "again": result.rows[:1]})
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == 10 and rows[0]["set"] == "held" and rows[-1]["set"] == "again"
    assert rows[0]["question"] == "pota rel0 ?" and rows[5]["correct"] is None and rows[0]["answers"] == ["o0"]
    assert [item.name for item in path.parent.iterdir()] == ["rows.jsonl"]
