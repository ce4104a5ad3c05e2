"""`ssp plan` as it is typed."""

from __future__ import annotations

import pytest

from launch.main import main

SMALL = ["--config", "simulated", "solver.batch=4", "proposer.batch=4", "schedule.preset=one-step-off"]


def test_it_prints_a_row_for_each_number_of_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *SMALL, "--gpus", "1,8", "--assume", "search_s=0.25"]) == 0
    said = capsys.readouterr().out
    rows = [line.split() for line in said.splitlines() if line[:1].isdigit()]
    assert [row[0] for row in rows] == ["1*", "8", "1*", "8"]
    assert "search_s = 0.25: seconds a search (typed)" in said and "take turns, with both bounds 0" in said
    assert main(["plan", *SMALL, "--gpus", "1,8", "--assume", "search_s=0.25"]) == 0
    assert capsys.readouterr().out == said


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--gpus", "0"], "whole number from 1"),
        (["--assume", "luck=1"], "--assume takes one of"),
        (["--assume", "tokens=many"], "--assume takes one of"),
        (["--gpus", "1", "defaults.engine.kind=vllm", "defaults.learner.kind=torch"], ""),
    ],
)
def test_what_it_cannot_plan_is_bad_input(typed: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *SMALL, *typed]) == 2
    assert said in capsys.readouterr().err
