"""A look at the actors tells of those that answered, and of nobody else."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from actors import metrics
from ssp.selfplay.records import TrainBatch
from ssp.selfplay.rollout_queue import RolloutQueue
from ssp.telemetry.activity import Activity


def crew(name: str, state: dict[str, float] | None) -> Any:
    """One shard with this state; None: it does not answer."""

    async def answer() -> dict[str, float]:
        if state is None:
            await asyncio.sleep(60)
        return state or {}

    return SimpleNamespace(name=name, handles=[SimpleNamespace(state=SimpleNamespace(remote=answer))])


def test_what_queues_and_shards_say_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "PATIENCE", 0.05)
    shown: list[tuple[Any, ...]] = []
    series: Any = SimpleNamespace(add=lambda *told: shown.append(told), grown=lambda *told: None)
    queues = {"solver": RolloutQueue("solver", 9, 900)}
    asyncio.run(queues["solver"].put(TrainBatch("solver", 1, [], {}, 400)))
    shard = crew("shard-0", {"under_way": 1.0, "items": 9.0, "seconds": 0.5})
    program: Any = SimpleNamespace(retriever=[shard, crew("shard-1", None)])
    asyncio.run(metrics.look(series, Activity(lambda *given, **more: None), program, queues))
    assert ("queue/bytes", "live", 400.0, "solver") in shown
    assert ("retriever/under_way", "live", 1.0, "shard-0") in shown
