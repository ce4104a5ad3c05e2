"""Evaluation: tasks, batches, rows, voids, figures of the periodic evaluation, intervals, the file."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ssp.base.episode import Document, Episode, Grade, Task
from ssp.base.errors import Fault
from ssp.base.tokenlog import Kind
from ssp.data.readers import Question
from ssp.game import evaluation
from ssp.game.evaluation import Kept, ScoredRow

QUESTIONS = [Question(f"q{i}", f"pota rel{i} ?", (f"o{i}",), hops=1 + i % 3) for i in range(9)]


def play(tasks: list[Task]) -> list[Episode]:
    """Right on 1-hop questions, wrong on 2-hop ones, silent on q2, void on q5, one search each."""
    episodes = []
    for task in tasks:
        i = int(task.id.rsplit("q", 1)[1].split("#")[0])
        episode = Episode(task.id, task.game, task.role, task.attempt, final=f"o{i}" if i % 3 == 0 else "zzz")
        episode.queries, episode.documents = ["pota"], [Document(f"d{i}", f'"T"\nsays o{i}, or more')]
        episode.log.append(Kind.PROMPT, [1])
        episode.log.append_model([2, 3], [0.0, 0.0], 1)
        if i == 2:
            episode.final = None
        if i == 5:
            episode.void(Fault("retriever_down"))
        if i == 8:
            episode.final = "O8 ."
        episodes.append(episode)
    return episodes


def rows(samples: int = 1) -> list[ScoredRow]:
    tasks = evaluation.make_tasks(QUESTIONS, 0, "c", "eval/set", samples)
    return Kept(None, "").played("set", QUESTIONS, tasks, play, batch=4)


@dataclass
class Periodic:
    hops: int
    correct: bool | None
    searches: int = 1
    category: str = ""


def test_voids_leave_the_periodic_estimate_and_silence_is_wrong() -> None:
    made = [Periodic(row.hops, None if row.em is None else bool(row.em)) for row in rows()]
    summary = evaluation.summarise(made)
    assert summary["items"] == 8 and summary["void"] == 1
    assert summary["accuracy_1hop"] == 1.0 and summary["accuracy_2hop"] == 0.0
    assert summary["accuracy_3hop"] == 0.5 and summary["items_3hop"] == 2
    assert summary["accuracy"] == 4 / 8
    assert summary["accuracy_mean123"] == pytest.approx(0.5)
    assert summary["stderr"] == pytest.approx(math.sqrt(0.25 / 8))
    assert summary["stderr_3hop"] == pytest.approx(math.sqrt(0.25 / 2))
    assert summary["searches"] == 1.0


def test_nothing_scored_means_no_estimate() -> None:
    assert evaluation.summarise([Periodic(1, None)]) == {"items": 0.0, "void": 1.0}
    assert evaluation.summarise([]) == {"items": 0.0, "void": 0.0}
    (line,) = evaluation.lines("set", [ScoredRow("q", "q ?", ["o"], None, cause="engine_died")])
    assert (line.rows, line.void, line.estimates) == (1, 1, {})


def test_rows_hold_every_score_and_a_void_none() -> None:
    found = rows()
    right, silent, void = found[0], found[2], found[5]
    assert (right.em, right.sub_em, right.f1, right.recall, right.searches, right.turns) == (1, 1, 1, 1, 1, 1)
    assert right.documents == ["d0"] and right.queries == ["pota"] and right.words == 1
    assert (silent.prediction, silent.em, silent.f1, silent.recall) == (None, 0, 0, 1)
    assert not void.scored and void.cause == "retriever_down"
    assert (void.em, void.sub_em, void.f1, void.judge, void.recall) == (None,) * 5


def test_the_judges_word_and_its_failures_are_kept_apart() -> None:
    found = [row for row in rows() if row.scored]
    words = [Grade(True), Grade(False), Grade(None, void_cause="judge_timeout")]
    said = [words[i % 3] for i in range(len(found))]
    judged = [replace(r, judge=g.right, judge_failure=g.void_cause) for r, g in zip(found, said, strict=True)]
    *_, line = evaluation.lines("set", judged)
    assert line.failures == 2 and line.estimates["judge"].mean == 0.5, "failures are neither right nor wrong"
    assert [row.judge_failure for row in judged[:3]] == ["", "", "judge_timeout"]


@pytest.mark.covers("SS-13")
def test_the_table_has_a_line_a_hop_count_and_the_whole() -> None:
    lines = {line.label: line for line in evaluation.lines("set", rows())}
    assert list(lines) == ["set 1hop", "set 2hop", "set 3hop", "set"]
    whole = lines["set"]
    assert (whole.rows, whole.void) == (9, 1)
    assert {name: estimate.mean for name, estimate in whole.estimates.items()} == {
        "em": 0.5, "sub_em": 0.5, "f1": 0.5, "recall": 1.0, "searches": 1.0, "turns": 1.0, "words": 1.0
    }  # fmt: skip


@pytest.mark.parametrize(
    ("right", "asked", "low", "high"),
    [(50, 100, 0.4038, 0.5962), (0, 20, 0.0, 0.1611), (20, 20, 0.8389, 1.0), (1, 1, 0.2065, 1.0), (0, 2, 0.0, 0.6576)],
)
def test_a_share_has_the_interval_of_wilson_also_at_its_ends(right: int, asked: int, low: float, high: float) -> None:
    made = [ScoredRow(f"q{i}", "", ["o"], "o", em=float(i < right), searches=2) for i in range(asked)]
    (line,) = evaluation.lines("set", made)
    em = line.estimates["em"]
    assert (em.low, em.high) == pytest.approx((low, high), abs=1e-4)
    searches = line.estimates["searches"]
    assert (searches.mean, searches.low, searches.high) == (2.0, 2.0, 2.0), "a count is no share"


def test_samples_of_one_question_are_no_further_questions() -> None:
    one = [ScoredRow(f"q{i}", "", ["o"], "o", em=float(i % 2)) for i in range(50)]
    many = [ScoredRow(row.id, "", ["o"], "o", sample=s, em=row.em) for row in one for s in range(4)]
    (a,), (b,) = evaluation.lines("set", one), evaluation.lines("set", many)
    assert (a.estimates["em"].low, a.estimates["em"].high) == (b.estimates["em"].low, b.estimates["em"].high)


def test_the_macro_average_weighs_sets_alike() -> None:
    sets = {
        name: evaluation.lines(name, [ScoredRow(f"{i}", "", ["o"], "o", em=float(i < right)) for i in range(n)])[-1]
        for name, n, right in (("a", 10, 10), ("b", 90, 0))
    }
    line = evaluation.macro(sets)
    assert (line.rows, line.estimates["em"].mean) == (100, 0.5)
    a, b = (sets[name].estimates["em"] for name in ("a", "b"))
    both = line.estimates["em"]
    assert (both.low, both.high) == pytest.approx((0.5 - (1.0 - a.low) / 2, 0.5 + b.high / 2))
    assert both.low < 0.4 and both.high < 0.53


def test_tasks_depend_on_seed_question_and_sample_only() -> None:
    one = evaluation.make_tasks(QUESTIONS, 7, "world:heldout", "eval/held")
    two = evaluation.make_tasks(QUESTIONS[::-1], 7, "world:heldout", "eval/held")
    assert one == two[::-1]
    assert one[0].id == "eval/held/q0" and one[0].corpus == "world:heldout" and one[0].role == "solver"
    assert len({task.seed for task in one}) == len(one)
    assert one[0].seed != evaluation.make_tasks(QUESTIONS, 8, "world:heldout", "eval/held")[0].seed
    three = evaluation.make_tasks(QUESTIONS, 7, "world:heldout", "eval/held", samples=3)
    assert three[::3] == one and [task.id for task in three[:2]] == ["eval/held/q0", "eval/held/q0#1"]
    assert len({task.seed for task in three}) == len({task.id for task in three}) == 27


def test_batches_are_bounded_and_change_nothing() -> None:
    tasks, sizes, done = evaluation.make_tasks(QUESTIONS, 0, "c", "p"), [], []

    def counted(batch: list[Task]) -> list[Episode]:
        sizes.append(len(batch))
        return play(batch)

    one = Kept(None, "").played("set", QUESTIONS, tasks, counted, 4, done.append)
    assert sizes == [4, 4, 1] and done == [0, 4, 8, 9]
    assert one == Kept(None, "").played("set", QUESTIONS, tasks, play, 256)


def test_select_takes_the_first_of_each_hop() -> None:
    assert [q.id for q in evaluation.select(QUESTIONS, 2)] == ["q0", "q1", "q2", "q3", "q4", "q5"]
    assert evaluation.select(QUESTIONS, 0) == []


def test_rows_are_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "rows.jsonl"
    evaluation.write_rows(path, {"held": rows(), "again": rows()[:1]})
    read = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(read) == 10 and read[0]["set"] == "held" and read[-1]["set"] == "again"
    assert read[0]["question"] == "pota rel0 ?" and read[5]["em"] is None and read[0]["golden_answers"] == ["o0"]
    assert [item.name for item in path.parent.iterdir()] == ["rows.jsonl"]
