"""A run that cannot start says so in one paragraph: software that is not there, a Ray that does not come up."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import folders
import pytest
import ray
from trainruns import POLICY

from actors.cluster import connect
from launch import main as console
from launch import train
from launch.shown import checks
from ssp.base.errors import SspError
from ssp.base.published import command
from ssp.capacity.placement import DoesNotFit
from ssp.search.index.builder import build_index
from ssp.selfplay.settings import load


def missing(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == package else find(name, *a))


def test_what_does_not_fit_is_a_table_and_a_paragraph(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DoesNotFit, match="close programs"), train._explained():
        raise DoesNotFit("what runs fits", "3 GB", "close programs", "the table")
    assert "the table" in capsys.readouterr().out


def test_everything_that_is_missing_is_told_at_once_and_gpus_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(checks.machine, "gpu_bytes", list)
    monkeypatch.setattr(train, "HASTY", 0.2)
    typed = ["--config", "gpu8", "judge.url=http://127.0.0.1:9/v1"]
    assert console.main(["train", *typed]) == 2
    first, *told = capsys.readouterr().err.splitlines()[-8:]
    assert first == "ssp: 7 things are refused, each with what to do:"
    heads = ("every unit of the run has its GPUs", "what data.corpus names", "what data.targets names",
             "what data.eval names", "proposer.model is", "solver.model is", "judge.url gives")  # fmt: skip
    assert all(line.startswith(f"{at}. {head}") for at, (line, head) in enumerate(zip(told, heads, strict=True), 1))
    assert "data.targets=data/ssp-targets/" in told[2] and "ssp download ssp-targets --to data/ssp-targets" in told[2]
    assert "ssp download flashrag --to data/flashrag." in told[3]


def test_given_questions_beside_proposed_ones_are_looked_for() -> None:
    shown = {
        check.what: check for check in checks.needs(load("quickstart", ["game.given=0.1", "data.questions=no.jsonl"]))
    }
    assert (shown["data"].status, shown["data"].found) == ("fail", "data.questions=no.jsonl")


def test_a_published_file_is_named_with_the_command_that_fetches_it() -> None:
    assert command("/a/data/flashrag/nq/test.jsonl") == "ssp download flashrag --to /a/data/flashrag"
    assert command("data/wiki-18-e5-index/e5_Flat.index").endswith("--unpack --to data/wiki-18-e5-index")
    assert command("mine/train.jsonl") == ""


def test_a_ray_that_does_not_come_up_is_a_paragraph(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: Any) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(SspError, match=r"Ray did not start: The current node timed out .* Next: ") as caught:
        connect(load("quickstart", ["ray.dashboard=-1"]).ray)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("package", "settings", "rule"),
    [
        ("vllm", ["defaults.engine.kind=vllm"], "engine.kind=vllm needs the package vllm"),
        ("deepspeed", ["solver.learner.kind=deepspeed"], "solver.learner.kind=deepspeed needs DeepSpeed"),
        ("faiss", ["data.eval=[]", "eval.every=0"], "search by vectors needs faiss"),
    ],
)
def test_what_is_not_installed_here_is_said_by_the_dry_run_and_the_doctor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    package: str, settings: list[str], rule: str,
) -> None:  # fmt: skip
    """A plan can be made anywhere; the doctor fails, and `train` refuses before it starts anything."""
    plan = folders.dense("Flat")
    build_index(folders.corpus(tmp_path / "c.jsonl", 60), tmp_path / "index", plan, encode=folders.Encode())
    missing(monkeypatch, package)
    typed = ["--config", "quickstart", f"defaults.model={POLICY}", f"data.corpus={tmp_path / 'index'}", *settings]
    assert console.main(["train", *typed, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "# Placement" in printed and f"warning: {rule}: not installed on this machine" in printed
    [check] = [check for check in checks.needs(load("quickstart", typed[2:])) if rule in check.found]
    assert (check.what, check.status) == ("software", "fail")
    assert console.main(["train", *typed, f"run.dir={tmp_path / 'run'}"]) == 2
    assert rule in capsys.readouterr().err and not (tmp_path / "run").exists()
