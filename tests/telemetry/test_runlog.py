"""Metrics lines: valid JSON whatever the figures, half lines, superseded steps."""

from __future__ import annotations

import json

import pytest

from ssp.errors import InputError, InvariantError
from ssp.telemetry.runlog import RunLog, read_metrics


def test_a_line_a_step_and_role(tmp_path):
    seen = []
    log = RunLog(tmp_path, sink=lambda *args: seen.append(args))
    log.write(1, "solver", {"reward/mean": 0.5, "loss": float("nan")})
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    log.close()
    line = json.loads(lines[0])
    assert len(lines) == 1 and line.pop("time") > 0
    assert line == {"step": 1, "role": "solver", "reward/mean": 0.5, "loss": None, "not_finite": ["loss"]}
    assert seen == [(1, "solver", {"reward/mean": 0.5})]
    board = b"".join(path.read_bytes() for path in (tmp_path / "tensorboard").iterdir())
    assert b"solver/reward/mean" in board and b"solver/loss" not in board


def test_the_lines_own_keys_are_taken(tmp_path):
    log = RunLog(tmp_path)
    with pytest.raises(InvariantError, match="'step'"):
        log.write(1, "game", {"step": 2.0})
    log.close()


def test_a_resumed_run_supersedes_and_a_half_line_is_gone(tmp_path):
    path = tmp_path / "metrics.jsonl"
    first = RunLog(tmp_path)
    for step in (1, 2, 3):
        first.write(step, "game", {"x": step})
    first.close()
    with path.open("a") as file:
        file.write('{"step": 4, "ro')
    assert [line["step"] for line in read_metrics(path)] == [1, 2, 3]
    again = RunLog(tmp_path)
    again.write(2, "game", {"x": 20})
    again.write(2, "solver", {"y": 1})
    again.close()
    assert [(line["step"], line["role"], line.get("x")) for line in read_metrics(path)] == [
        (1, "game", 1.0),
        (2, "game", 20.0),
        (2, "solver", None),
        (3, "game", 3.0),
    ]
    assert len(path.read_text().splitlines()) == 5


def test_a_broken_line_in_the_middle_is_refused_with_its_number(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "role": "game"}\nnonsense\n{"step": 2, "role": "game"}\n')
    with pytest.raises(InputError, match="line 2: nonsense"):
        read_metrics(path)
    with pytest.raises(InputError, match="must exist"):
        read_metrics(tmp_path / "other.jsonl")
