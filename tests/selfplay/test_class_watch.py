"""Accuracy by class of questions: the alarm that names a class that falls, and what goes with it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fakes import Sink, config
from test_parts import EvalStages

from ssp.base.errors import InputError
from ssp.data.readers import CATEGORIES, Question, read_questions
from ssp.game.evaluation import lines
from ssp.game.evaluation.rows import row_of
from ssp.game.games.duel import GAME as DUEL
from ssp.selfplay.evaluator import Evaluator, QuestionSet
from ssp.selfplay.health import ClassWatch
from ssp.selfplay.records import Published
from ssp.selfplay.report import Report


def scores(**classes: tuple[float, int]) -> dict[str, float]:
    """The figures of an evaluation: accuracy and questions by class; `form__x` stands for `form.x`."""
    figures: dict[str, float] = {"eval/accuracy": 0.5, "eval/items": 100.0, "eval/accuracy_mean123": 0.5}
    for name, (accuracy, items) in classes.items():
        name = name.replace("form__", "by_form.")
        figures |= {f"eval/accuracy_{name}": accuracy, f"eval/items_{name}": float(items)}
    return figures


def hop(accuracy: float, items: int = 64) -> dict[str, float]:
    return scores(form__backwards=(accuracy, items))


def test_the_alarm_names_the_class_and_how_often_it_was_asked() -> None:
    """Backwards from 45 to 10 % of 64 questions; forwards stays."""
    said: list[str] = []
    watch = ClassWatch(said.append)
    assert watch.see(0, scores(form__backwards=(0.453, 64), form__forwards=(0.77, 190))) == {}
    for step in range(1, 6):
        watch.asked(step, {"game/asked_form.forwards": 0.5, "game/asked_form.backwards": 0.02 * (step == 1)})
    figures = watch.see(5, scores(form__backwards=(0.1, 64), form__forwards=(0.76, 190)))
    assert figures == {"eval/alarm_form.backwards": 1.0, "eval/alarm_form.forwards": 0.0}
    (alarm,) = said
    assert alarm.startswith("class alarm: form.backwards at step 5: 10.0% right, and 45.3% at step 0.")
    assert "0.4% of the questions that were tried" in alarm and "Next:" in alarm
    assert watch.see(10, hop(0.1)) == {"eval/alarm_form.backwards": 1.0} and len(said) == 1, "told once while it lasts"
    assert watch.see(15, hop(0.5)) == {"eval/alarm_form.backwards": 0.0}
    assert watch.see(20, hop(0.1)) == {"eval/alarm_form.backwards": 1.0} and len(said) == 2


@pytest.mark.parametrize(("before", "after", "items", "down"), [
    (0.5, 0.46, 10_000, False),  # less than 5 points
    (0.5, 0.44, 10_000, True),
    (0.5, 0.30, 64, False),  # chance
    (0.02, 0.0, 64, False),
    (1.0, 0.0, 2, False),  # of two questions
])  # fmt: skip
def test_a_class_is_down_by_five_points_and_more_than_chance(
    before: float, after: float, items: int, down: bool
) -> None:
    watch = ClassWatch(str)
    watch.see(0, hop(before, items))
    assert watch.see(1, hop(after, items)) == {"eval/alarm_form.backwards": float(down)}


def test_without_an_oracle_nothing_is_said_of_how_often_and_what_comes_again_is_forgotten() -> None:
    said: list[str] = []
    earlier = [{"step": 0, "role": "eval", **hop(0.6)}, {"step": 4, "role": "eval", **hop(0.9)}]
    watch = ClassWatch(said.append, [*earlier, {"step": 1, "role": "game", "game/asked_2hop": 1.0}])
    watch.restart(2)
    watch.see(5, hop(0.2))
    assert "60.0% at step 0. Next:" in said[0], "of the process before, and not of a step that is given up"


def test_a_report_writes_the_alarm_beside_the_scores() -> None:
    sink = Sink()
    report = Report(sink, None, 1, DUEL)
    for step, accuracy in ((0, 0.9), (2, 0.1)):
        report.evaluated(step, hop(accuracy), 1.0)
    assert sink.rows[-1][2]["eval/alarm_form.backwards"] == 1.0 and len(sink.events) == 1


def test_an_evaluation_tells_accuracy_by_column() -> None:
    asked = [Question(f"q{i}", f"w{i} seat ?", ("w1",), 1 + i % 2, category=f"form.{'ab'[i % 2]}") for i in range(8)]
    cfg = config(eval__hops=(1, 2), eval__final_questions_per_hop=4)
    stages: Any = EvalStages()
    anchor: Any = None
    evaluator = Evaluator(cfg, [QuestionSet("main", asked, "train")])
    figures = asyncio.run(evaluator.run(3, True, Published(1, None), anchor, stages))
    assert figures["eval/items_by_form.a"] + figures["eval/items_by_form.b"] == figures["eval/items"]
    assert figures["eval/accuracy_by_form.b"] == figures["eval/accuracy_2hop"]
    table = [line.label for line in lines("main", [row_of(question, "w1") for question in asked])]
    assert table == ["main 1hop", "main 2hop", "main form.a", "main form.b", "main"]


def test_a_column_is_read_from_row_or_metadata_and_has_few_values(tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    lines = [
        '{"question": "a ?", "answer": "b", "metadata": {"topic": "Old music"}}',
        '{"question": "c ?", "answer": "d"}',
    ]
    lines.append('{"question": "e ?", "answer": "f", "topic": 3}')
    file.write_text("\n".join(lines) + "\n")
    assert [question.category for question in read_questions(file, by="topic")] == ["topic.Old_music", "", "topic.3"]
    assert {question.category for question in read_questions(file)} == {""}
    rows = [f'{{"question": "{i} ?", "answer": "d", "topic": "t{i}"}}' for i in range(CATEGORIES + 1)]
    file.write_text("\n".join(rows) + "\n")
    with pytest.raises(InputError, match=r"at most 24.*eval\.by"):
        read_questions(file, by="topic")
    file.write_text('{"question": "a ?", "answer": "b", "topic": ["x"]}\n')
    with pytest.raises(InputError, match="topic"):
        read_questions(file, by="topic")
