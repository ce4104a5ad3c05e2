"""A judge that fails for a part of a run: what it did not grade is void, nothing else changes, the run waits for it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakejudge import HANG, FakeJudge, Reply, serving
from fakes import Stage, config

from ssp.base.text import same
from ssp.config.schema import Config
from ssp.game.judge import endpoint

Answer = Callable[[dict[str, Any], int], Reply | str]
CAUSES = {"judge_down", "judge_format"}
STEPS = 14


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "BACKOFF", 0.001)


def opinion(said: dict[str, Any]) -> str:
    """A judge with a mind of its own about answers that do not match exactly."""
    text = f"{said['question']}|{said['answer']}".encode()
    return "Correct" if hashlib.sha256(text).digest()[0] % 2 else "Wrong"


class Sick:
    """Healthy for some requests, then each kind of failure for some, then healthy again; keeps what it really judged."""

    def __init__(self, *phases: tuple[str, int]) -> None:
        self.phases = [kind for kind, count in phases for _ in range(count)]
        self.judged: set[tuple[str, str]] = set()

    def __call__(self, said: dict[str, Any], number: int) -> Reply | str:
        kind = self.phases[number - 1] if number <= len(self.phases) else "healthy"
        if kind == "healthy":
            self.judged.add((said["question"], said["answer"]))
            return opinion(said)
        lies = ["Correct and wrong", "not correct", "", "{}"]
        replies = {"error": Reply("oh no, SENTINEL", 500), "hang": HANG, "lie": lies[number % 4]}
        return replies[kind]


def settings(server: FakeJudge, **changes: Any) -> Config:
    judge = {"kind": "llm", "url": server.url, "model": "m", "timeout": 0.2, "retries": 1}
    bounds = {"concurrency": 4}
    gate = {"void__limit": 0.3, "void__window": 24, "void__probe_every": 0.03, "void__give_up_after": 30.0}
    judges = {f"judge__{key}": value for key, value in {**judge, **bounds}.items()}
    return config(steps=STEPS, eval__every=0, save__every=100, placement__judges=1, **{**judges, **gate, **changes})


def play(path: Path, answer: Answer, **changes: Any) -> Stage:
    with serving(answer) as server:
        stage = Stage(settings(server, **changes), path).played()
    return stage


def attempts(stage: Stage) -> dict[str, tuple[str, str, str | None]]:
    """Id → question, gold and answer of every attempt that reached the judge."""
    found = {}
    for _, method, args in stage.cast.judges.calls:  # type: ignore[attr-defined]
        for row, item in args[1] if method == "grade" else ():
            found[args[0][row].id] = (item.question, item.golds[0], args[0][row].final)
    return found


@pytest.mark.covers("SP-03", "SP-07")
def test_a_judge_that_fails_for_a_while_changes_no_reward_that_it_did_not_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SSP_JUDGE_KEY", "SENTINEL")
    sick = Sick(("healthy", 12), ("lie", 8), ("error", 6), ("hang", 4), ("lie", 2))
    healthy = play(tmp_path / "healthy", lambda said, number: opinion(said), judge__timeout=10.0)
    faulty = play(tmp_path / "faulty", sick)
    wanted, got = ({row["id"]: row for row in stage.rows()} for stage in (healthy, faulty))
    assert set(wanted) == set(got)

    ungraded: dict[str, str] = {}
    for id_, (question, gold, answer) in attempts(faulty).items():
        asked = bool(answer) and not same(answer or "", [gold])
        if got[id_]["outcome"] == "void":
            assert asked and got[id_]["reward"] is None and got[id_]["cause"] in CAUSES
            ungraded[id_] = got[id_]["game_id"]
        else:
            assert got[id_]["reward"] == wanted[id_]["reward"], id_
            assert not asked or (question, answer) in sick.judged, id_
    assert {got[id_]["cause"] for id_ in ungraded} == CAUSES
    for id_, row in got.items():  # proposals, and attempts that never reached the judge
        if row["outcome"] != "void" and row["game_id"] not in ungraded.values():
            assert (row["outcome"], row["reward"]) == (wanted[id_]["outcome"], wanted[id_]["reward"])
    assert any(row["reward"] == 1.0 for row in wanted.values() if row["role"] == "solver")

    said = [event for event in faulty.sink.events if "admission" in event or "probing" in event]
    assert "judge_" in said[0] and said[0].startswith("admission stopped")
    assert "probing with one round" in said and said[-1] == "admission resumed"
    assert [event for event in healthy.sink.events if "admission" in event] == []
    assert faulty.state()["step"] == STEPS
    seen = sum(values.get(f"void/{cause}", 0) for _, role, values in faulty.sink.rows for cause in CAUSES)
    assert seen == len(ungraded)

    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert files and not any(b"SENTINEL" in content for content in files)
    assert "SENTINEL" not in repr(faulty.sink.events) + caplog.text and "judge_down" in caplog.text
