"""`ssp eval` over the tiny policy: searches recorded and replayed, and the source of searches by command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from launch import main as console
from ssp.game import corpora

SMALL = [
    "solver.model=tiny", "retriever.topk=1", "solver.engine.kind=torch", "solver.engine.dtype=float32",
    "solver.engine.tensor_parallel=1", "solver.engine.memory=0.85", "solver.engine.sequences=256",
    "solver.limits.searches=5",
    "solver.limits.turn_tokens=160", "solver.limits.observation_tokens=200", "solver.limits.total_tokens=4096",
]  # fmt: skip
ASKED = ["--data", "world:heldout", "--per-hop", "4", "--temperature", "1"]


def play(recipe: str, *more: str) -> int:
    torch.set_num_threads(1)
    return console.main(["eval", "--config", recipe, *SMALL, *ASKED, *more])


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.covers("SR-51", "SS-09")
def test_a_recorded_evaluation_is_replayed_without_a_retriever(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record, online, offline = tmp_path / "r.db", tmp_path / "online.jsonl", tmp_path / "offline.jsonl"
    assert play("search-r1-qwen2.5-3b-ppo", "--record", str(record), "--out", str(online)) == 0
    first = capsys.readouterr().out
    assert "searches: " in first and "(100.0%)" not in first and any(row["searches"] for row in rows(online))

    def gone(*args: object) -> None:
        raise AssertionError("nothing is searched")

    monkeypatch.setattr(corpora, "search", gone)
    assert play("search-r1-qwen2.5-3b-ppo", "--replay", str(record), "--out", str(offline)) == 0
    assert online.read_bytes() == offline.read_bytes()
    second = capsys.readouterr().out
    assert "(100.0%)" in second and figures(first) == figures(second)


def figures(out: str) -> list[str]:
    return [line for line in out.splitlines() if "world:heldout" in line]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--record", "a.db", "--replay", "a.db"], "not allowed with"),
        (["--replay", "nowhere.db"], "record one first"),
        (["--record", "nowhere/a.db"], "a.db"),
    ],
)
def test_records_that_cannot_be(typed: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert play("search-r1-qwen2.5-3b-ppo", *typed) == 2
    assert said in capsys.readouterr().err
