"""What a look at the actors gives to queues.jsonl: each queue that answered, and nobody else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors import metrics
from ssp.telemetry.activity import Activity
from ssp.telemetry.runlog import QueueLog
from ssp.telemetry.runlog import read_queues as read

FIGURES = {"items": 12.0, "bytes": 400.0, "leased": 1.0, "age": 2.5}


def crew(method: str, told: dict[str, float] | None, name: str = "") -> Any:
    async def answer() -> dict[str, float]:
        if told is None:
            await asyncio.sleep(60)
        return told or {}

    handle = SimpleNamespace(**{method: SimpleNamespace(remote=answer)})
    return SimpleNamespace(name=name, handles=[handle])


def test_what_queues_say_is_kept_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "PATIENCE", 0.05)
    monkeypatch.setattr(metrics, "EVERY", 0.01)
    shown: list[tuple[Any, ...]] = []
    series: Any = SimpleNamespace(add=lambda *told: shown.append(told), grown=lambda *told: None)
    queues = {"proposer": crew("figures", None), "solver": crew("figures", FIGURES)}
    shard = crew("state", {"under_way": 1.0, "items": 9.0, "seconds": 0.5}, "shard-0")
    program: Any = SimpleNamespace(queues=queues, retriever=[shard])
    activity = Activity(lambda *given, **more: None)
    assert asyncio.run(metrics.look(series, activity, program)) == {"solver": FIGURES}
    assert ("queue/age", "live", 2.5, "solver") in shown and not any(told[-1] == "proposer" for told in shown)

    async def watched() -> None:
        log = QueueLog(tmp_path / "queues.jsonl", lambda text: None)
        task = asyncio.create_task(metrics.watch(series, activity, program, log))
        await asyncio.sleep(0.3)
        task.cancel()

    asyncio.run(watched())
    (line,) = read(tmp_path / "queues.jsonl")
    assert line["solver"] == FIGURES and set(line) == {"time", "solver"}
