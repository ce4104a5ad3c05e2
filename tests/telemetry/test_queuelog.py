"""queues.jsonl: a line when something changed, and never a reason to fail."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from ssp.telemetry.runlog import QueueLog
from ssp.telemetry.runlog import read_queues as read


def told(items: float, age: float = 0.0, queue: str = "solver") -> dict[str, dict[str, float]]:
    return {queue: {"items": items, "bytes": 100 * items, "leased": 1.0, "age": age}}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_700_000_000.5]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def log(path: Path) -> tuple[QueueLog, list[str]]:
    said: list[str] = []
    return QueueLog(path / "queues.jsonl", said.append), said


def test_a_line_when_something_changed_else_one_a_minute(tmp_path: Path, clock: list[float]) -> None:
    writer, said = log(tmp_path)
    writer.write({})
    assert not (tmp_path / "queues.jsonl").exists(), "nobody answered"
    for look in range(40):
        clock[0] += 5
        writer.write(told(3 if look < 30 else 4, age=5.0 * look))
    lines = read(tmp_path / "queues.jsonl")
    assert [round(line["time"] - lines[0]["time"]) for line in lines] == [0, 60, 120, 150]
    assert lines[1]["solver"] == {"items": 3, "bytes": 300, "leased": 1.0, "age": 60.0} and said == []


def test_a_queue_that_does_not_answer_is_as_it_was(tmp_path: Path, clock: list[float]) -> None:
    writer, _ = log(tmp_path)
    writer.write(told(3) | told(7, queue="questions"))
    writer.write(told(4))
    assert [line["questions"]["items"] for line in read(tmp_path / "queues.jsonl")] == [7, 7]


def test_after_a_kill_it_goes_on_without_half_a_line(tmp_path: Path, clock: list[float]) -> None:
    """The killed process's queues are gone until the next one's first look; a clock that was put back orders no line anew."""
    writer, _ = log(tmp_path)
    writer.write(told(3))
    path = tmp_path / "queues.jsonl"
    with path.open("a") as file:
        file.write('{"time": 17000')
    assert [line["solver"]["items"] for line in read(path)] == [3]
    clock[0] -= 100
    writer, said = log(tmp_path)
    writer.write(told(5))
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    assert [line.get("solver", {}).get("items") for line in lines] == [3, None, 5] and said == []
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)


def test_what_is_no_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "queues.jsonl"
    path.write_bytes(b'\xff\n[]\n{"a": 1}\n{"time": "x"}\n3\n\n{"time": 1.5}\n')
    assert read(path) == [{"time": 1.5}] and read(tmp_path / "none") == []


def test_a_full_disk_is_said_once(tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    writer, said = log(tmp_path)
    writer.write(told(1))

    def full(*given: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        writer.write(told(2))
        writer.write(told(3))
    writer.write(told(4))
    assert said == ["queues.jsonl is not written any more: [Errno 28] No space left on device"]
    assert [line["solver"]["items"] for line in read(tmp_path / "queues.jsonl")] == [1]
    writer, said = log(tmp_path / "gone")
    writer.write(told(1))
    assert len(said) == 1
