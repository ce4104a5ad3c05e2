"""What a run says of its cost at its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ssp.record.runfolder import RunFolder
from ssp.telemetry.runlog import RunLog
from ssp.telemetry.spent import spent


def test_hours_and_tokens_of_all_processes_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that a run went back behind count no more."""
    for _ in range(2):
        log = RunLog(tmp_path)
        log.restart(1 if log.earlier else 0)
        for step in (1, 2):
            log.write(step, "eval", {"time/eval": 200.0})
            log.write(step, "game", {"time/step": 1600.0, "game/tokens": 3000.0})
            log.write(step, "solver", {"tokens": 1000.0})
        log.close()
    said = spent(RunFolder(tmp_path), 8, 1)
    assert said == "spent: 8 GPU-hours (8 GPUs for 60 minutes); 6,000 tokens played, 2,000 trained"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert spent(RunFolder(tmp_path), 0, 3).startswith("spent: 6 CPU-hours (6 CPUs for 60 minutes)")


def test_figures_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("nothing\n{}\n")
    assert spent(RunFolder(tmp_path), 0, 1).startswith("spent: not known: every finished line")
