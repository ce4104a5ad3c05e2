"""The checkpoint that evaluations speak best for: chosen among those that are there, and not pruned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ssp.record.manifest import RECORD, read_record
from ssp.record.runfolder import RunFolder
from ssp.selfplay.best import METRIC, PLAIN, best
from ssp.telemetry.runlog import read_metrics
from tests.replay.replayruns import play


def folder_of(path: Path, metric: str, scores: dict[int, float | None], kept: dict[int, int]) -> RunFolder:
    """`scores`: step → value; `kept`: version → step of a checkpoint that is there."""
    path.mkdir()
    lines = [{"step": step, "role": "eval", "time": 0.0, metric: value} for step, value in scores.items()]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for version, step in kept.items():
        place = path / "checkpoints" / "solver" / f"v{version}"
        place.mkdir(parents=True)
        (place / RECORD).write_text(json.dumps({"run_step": step}))
    return RunFolder(path)


@pytest.mark.parametrize("metric", [METRIC, PLAIN])
@pytest.mark.parametrize(
    ("kept", "found"),
    [
        ({1: 0, 3: 2, 5: 4, 7: 6}, "v5"),
        ({1: 0, 3: 2, 7: 6}, "v3"),  # of two equal ones the first
        ({3: 2, 9: 4, 5: 4}, "v9"),  # played again after going back: the newer one has what was evaluated last
        ({4: 3, 8: 7}, None),  # nobody evaluated these
        ({1: 0}, None),
        ({}, None),
    ],
)
def test_the_best_of_what_is_there(tmp_path: Path, metric: str, kept: dict[int, int], found: str | None) -> None:
    scores = {0: 0.9, 2: 0.5, 4: 0.8, 6: 0.5, 7: None}
    chosen = best(folder_of(tmp_path / "run", metric, scores, kept), "solver")
    assert (chosen and chosen.name) == found


def test_a_run_without_figures_has_none(tmp_path: Path) -> None:
    assert best(RunFolder(tmp_path), "solver") is None


@pytest.mark.slow
def test_a_run_keeps_it_beside_the_newest(tmp_path: Path) -> None:
    asked = ["steps=4", "eval.every=1", "eval.questions_per_hop=8", "eval.final_questions_per_hop=8"]
    folder = RunFolder(play(tmp_path / "run", *asked, "save.keep=1", "health.on_collapse=warn"))
    scores = {line["step"]: line[METRIC] for line in read_metrics(folder.metrics) if METRIC in line and line["step"]}
    first = max(scores, key=lambda step: (scores[step], -step))
    assert len(scores) == 4 and first < 4, "else the newest one is the best, and this shows nothing"
    steps = {read_record(path)["run_step"] for path in folder.versions("solver")}
    assert steps == {first, 4}
    assert len(folder.versions("proposer")) == 1
