"""Metrics lines: valid JSON whatever the figures, half lines, superseded steps."""

from __future__ import annotations

import json

import pytest
from tensorboardX.proto.event_pb2 import Event

from ssp.base.errors import InputError, InvariantError
from ssp.telemetry.runlog import RunLog, read_metrics


def test_a_line_a_step_and_role(tmp_path):
    seen = []
    log = RunLog(tmp_path, {"seen": lambda *args: seen.append(args)})
    log.write(1, "solver", {"reward/mean": 0.5, "loss": float("nan")})
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    log.close()
    line = json.loads(lines[0])
    assert len(lines) == 1 and line.pop("time") > 0
    assert line == {"step": 1, "role": "solver", "reward/mean": 0.5, "loss": None, "not_finite": ["loss"]}
    assert seen == [(1, "solver", {"reward/mean": 0.5})]
    (file,) = (tmp_path / "tensorboard" / "solver").iterdir()  # a run of its own for TensorBoard
    assert b"reward/mean" in file.read_bytes() and b"loss" not in file.read_bytes()


def board(folder) -> list[tuple[str, int, float]]:
    """What TensorBoard shows: a start event of a later file takes away what earlier ones have from its step on."""
    shown = []
    for path in sorted((folder / "tensorboard" / "game").iterdir()):
        for event in events(path):
            if event.HasField("session_log") and event.session_log.status == event.session_log.START:
                shown = [point for point in shown if point[1] < event.step]
            shown += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
    return shown


def events(path):
    content, at = path.read_bytes(), 0
    while at < len(content):
        length = int.from_bytes(content[at : at + 8], "little")
        yield Event.FromString(content[at + 12 : at + 12 + length])
        at += length + 16


def test_tensorboard_has_no_step_twice_after_a_resume_or_a_way_back(tmp_path):
    first = RunLog(tmp_path)
    first.restart(0)
    for step in (0, 1, 2, 3):
        first.write(step, "game", {"x": step})
    first.restart(1)  # back to the checkpoint of step 1, in the same process
    first.write(2, "game", {"x": 20})
    first.write(3, "game", {"x": 30})
    first.close()
    again = RunLog(tmp_path)  # killed and resumed
    again.restart(2)
    again.write(3, "game", {"x": 300})
    again.write(4, "game", {"x": 400})
    again.close()
    assert board(tmp_path) == [("x", step, value) for step, value in enumerate((0, 1, 20, 300, 400))]
    fine = RunLog(tmp_path)  # nothing was played after the checkpoint
    fine.restart(4)
    fine.write(5, "game", {"x": 5})
    fine.close()
    assert len(board(tmp_path)) == 6 and len(list((tmp_path / "tensorboard" / "game").iterdir())) == 4


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
    again.restart(1)
    again.write(2, "game", {"x": 20})
    again.write(2, "solver", {"y": 1})
    again.close()
    wanted = [(1, "game", 1.0), (2, "game", 20.0), (2, "solver", None)]  # step 3 is of what was given up
    assert [(line["step"], line["role"], line.get("x")) for line in read_metrics(path)] == wanted
    assert len(path.read_text().splitlines()) == 5


def test_of_a_branch_that_was_gone_back_from_nothing_is_read(tmp_path):
    """Of no role: its last evaluation is not the run's."""
    log = RunLog(tmp_path)
    for step in range(25):
        for role in ("game", "solver") if step else ():
            log.write(step, role, {"x": step})
        if step % 10 == 0:
            log.write(step, "eval", {"y": step})
    log.close()
    again = RunLog(tmp_path)
    again.restart(7)
    for step in (8, 9):
        again.write(step, "game", {"x": -step})
    again.close()
    read = read_metrics(tmp_path / "metrics.jsonl")
    assert [line["step"] for line in read if line["role"] == "eval"] == [0]
    assert [line["x"] for line in read if line["role"] == "game"] == [*range(1, 8), -8, -9]
    assert [line["step"] for line in read if line["role"] == "solver"] == [*range(1, 8)]
    assert not any("back" in line for line in read), "no figure"


def test_rounds_under_way_at_once_are_all_read(tmp_path):
    """The solver's learner may be ahead, and what it is asked is written before the rounds are."""
    log, order = RunLog(tmp_path), [(0, "eval"), (1, "game"), (3, "eval"), (2, "game"), (2, "solver"), (3, "game")]
    for step, role in order:
        log.write(step, role, {"x": step})
    log.close()
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == len(order)


def test_a_broken_line_in_the_middle_is_refused(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "role": "game"}\nnonsense\n{"step": 2, "role": "game"}\n')
    with pytest.raises(InputError, match="nonsense"):
        read_metrics(path)
    with pytest.raises(InputError, match="must exist"):
        read_metrics(tmp_path / "other.jsonl")
