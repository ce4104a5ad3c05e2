"""A run that cannot start says so in one paragraph: software that is not there, a Ray that does not come up."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import ray
from trainruns import POLICY

from actors.cluster import connect
from launch import main as console
from ssp.config import load
from ssp.errors import SspError


def missing(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == package else find(name, *a))


def test_without_deepspeed_a_run_is_refused_before_it_has_a_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing(monkeypatch, "deepspeed")
    typed = [f"defaults.model={POLICY}", "solver.learner.kind=deepspeed", f"run.dir={tmp_path / 'run'}"]
    assert console.main(["train", "--config", "quickstart", *typed]) == 2
    said = capsys.readouterr().err
    assert "solver.learner.kind=deepspeed needs DeepSpeed" in said and "solver.learner.kind=torch" in said
    assert not (tmp_path / "run").exists()


def test_without_deepspeed_a_warm_start_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing(monkeypatch, "deepspeed")
    typed = [f"defaults.model={POLICY}", "solver.learner.kind=deepspeed", f"warmup.data={tmp_path / 'traces.jsonl'}"]
    assert console.main(["warmup", "--config", "quickstart", *typed, "--out", str(tmp_path / "out")]) == 2
    assert "needs DeepSpeed" in capsys.readouterr().err


def test_a_ray_that_does_not_come_up_is_a_paragraph(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: Any) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(SspError, match=r"Ray did not start: The current node timed out .* Next: ") as caught:
        connect(load("quickstart", ["ray.dashboard=false"]).ray)
    assert caught.value.exit_code == 1
