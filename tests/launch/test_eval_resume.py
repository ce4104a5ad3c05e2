"""`ssp eval` over hours: rows as they come, an evaluation that goes on, what it says meanwhile, batches within memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from launch import eval as evaluate
from ssp.base import devices
from ssp.base.episode import Episode, Task
from ssp.base.errors import Fault, InputError
from ssp.data.readers import Question
from ssp.game import protocols
from ssp.game.evaluation import Play
from ssp.selfplay.settings import load
from ssp.selfplay.workers import build
from ssp.telemetry import terminal

QUESTIONS = [Question(f"q{n}", "vene mayor ?", (f"a{n}",)) for n in range(7)]


class Script:
    """A policy that answers all rightly. `asked`: questions so far; `most`: after so many Ctrl-C comes; `void`: faults."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.most, self.void = 99, ""

    def player(self, cfg: Any, role: str, folder: Path, search: Any, heat: float) -> Play:
        return self.play

    def play(self, tasks: list[Task]) -> list[Episode]:
        if len(self.asked) >= self.most:
            raise KeyboardInterrupt
        names = [task.id.rpartition("/")[2] for task in tasks]
        self.asked += names
        made = [Episode(t.id, t.game, t.role, 0, final=f"a{name[1]}") for t, name in zip(tasks, names, strict=True)]
        for episode, name in zip(made, names, strict=True):
            if name == self.void:
                episode.void(Fault("engine_died"))
        return made


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Plays in place of a policy; the data lies in data.jsonl."""
    lines = [json.dumps({"id": q.id, "question": q.question, "golden_answers": list(q.answers)}) for q in QUESTIONS]
    (tmp_path / "data.jsonl").write_text("\n".join(lines) + "\n")
    made = Script()
    monkeypatch.setattr(build, "player", made.player)
    return made


def run(folder: Path, *more: str) -> int:
    data = ["--data", str(folder / "data.jsonl"), "--corpus", "none", "--out", str(folder / "rows.jsonl")]
    return evaluate.main([*data, "--batch", "2", *more])


def test_an_evaluation_that_was_ended_goes_on_where_it_was(
    tmp_path: Path, script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    out, part = tmp_path / "rows.jsonl", tmp_path / "rows.jsonl.part"
    assert run(tmp_path) == 0
    whole = out.read_bytes()
    out.unlink()
    assert not part.exists()
    script.asked, script.most, script.void = [], 4, "q1"
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert "4 rows are kept in" in capsys.readouterr().err and not out.exists()
    part.write_bytes(part.read_bytes() + b'{"set": "data", "id": "q4"')  # cut off by the end of the process
    script.asked, script.most, script.void = [], 2, ""
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert script.asked == ["q1", "q4"], "the void one is asked again"
    script.asked, script.most = [], 99
    assert run(tmp_path) == 0 and script.asked == ["q5", "q6"]
    assert out.read_bytes() == whole and not part.exists()


def test_rows_of_other_settings_are_not_taken_up(tmp_path: Path, script: Script) -> None:
    kept, script.most = tmp_path / "rows.jsonl.part", 4
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    rows, asked = kept.read_text(), [*script.asked]
    for more in (["seed=1"], ["--samples", "2", "--temperature", "1"], ["solver.limits.searches=1"]):
        with pytest.raises(InputError, match="same policy, data and settings"):
            run(tmp_path, *more)
    assert kept.read_text() == rows and script.asked == asked


@pytest.mark.parametrize("kind", ["agent", "protocol"])
def test_rows_of_other_code_or_another_prompt_are_not_taken_up(tmp_path: Path, script: Script, kind: str) -> None:
    code, spoken = tmp_path / "own.py", tmp_path / "own.yaml"
    code.write_text("async def solve(chat, task): ...\n")
    spoken.write_text(
        (Path(protocols.__file__).parent / "library" / "mini.yaml").read_text().replace("id: mini", "id: my-mini")
    )
    setting = {"agent": f"solver.agent={code}:solve", "protocol": f"protocol={spoken}"}[kind], "defaults.model=tiny"
    script.most = 4
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, *setting)
    with {"agent": code, "protocol": spoken}[kind].open("a") as file:
        file.write("# mended\n")
    script.most = 99
    with pytest.raises(InputError, match="same policy, data and settings"):
        run(tmp_path, *setting)


def test_without_a_terminal_a_line_comes_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "PULSE", 0.0)
    with terminal.followed("nq", 12) as moved:
        moved(4)
    assert [line.rpartition(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "nq: 4 of 12 episodes",
        "nq: 12 episodes",
    ]


def test_questions_at_once_are_bounded_by_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = load("quickstart", ["solver.limits.total_tokens=4096"])
    folder = build.policy_dir(cfg, None)
    monkeypatch.setattr(devices, "available_mb", lambda: 100_000)
    assert evaluate._batch(cfg, folder) == evaluate.BATCH
    monkeypatch.setattr(devices, "available_mb", lambda: 128)
    few = evaluate._batch(cfg, folder)
    assert 1 <= few < evaluate.BATCH
    longer = load("quickstart", ["solver.limits.total_tokens=8192"])
    assert evaluate._batch(longer, folder) == pytest.approx(few / 2, abs=1)
    monkeypatch.setattr(devices, "available_mb", lambda: 0)
    assert evaluate._batch(cfg, folder) == 1


def test_on_a_gpu_they_are_bounded_by_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = load("quickstart", ["solver.limits.total_tokens=4096"])
    folder = build.policy_dir(cfg, None)
    monkeypatch.setattr(devices, "available_mb", lambda: 300)
    few = evaluate._batch(cfg, folder)
    monkeypatch.setattr(devices, "find", lambda asked: torch.device("cuda"))
    monkeypatch.setattr(devices, "available_mb", lambda: 100_000)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (300 * 2**20, 2**40))
    rows = evaluate._batch(cfg, folder)
    assert few // 2 < rows <= few and rows.bit_count() == 1, "the rows of its cache are a power of two"
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (0, 2**40))
    assert evaluate._batch(cfg, folder) == 1


def test_a_server_elsewhere_is_asked_without_a_look_at_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may fill it, and then CUDA does not even start."""
    cfg = load("quickstart")
    cfg.solver.engine.kind = "endpoint"
    monkeypatch.setattr(devices, "find", lambda asked: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: pytest.fail("asked"))
    assert evaluate._batch(cfg, build.policy_dir(load("quickstart"), None)) == evaluate.BATCH
