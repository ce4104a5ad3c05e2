"""The experiments' runner and report on known data: what is missing, what is told to a run, intervals, pages."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent / "experiments"))

import report  # noqa: E402
import run  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402

from ssp.selfplay.settings import load  # noqa: E402

NAMES = sorted(file.stem for file in run.HERE.glob("*.yaml"))
ABOUT: dict[str, Any] = {
    "title": "T", "about": "A", "seeds": 2, "coldstarts": 2, "control": "a", "base": ["steps=3"],
    "arms": {"a": [], "b": ["seed=7"], "c": ["--outages", "ssp"]}, "shown": ["corrupted_solver"], "finding": "None.",
}  # fmt: skip


def row(arm: str, seed: int, end: float = 0.5, **more: Any) -> dict[str, Any]:
    hops = {"hop1": end, "hop2": end, "hop3": end, "train": end, "junk": 0.0, "start": 0.1}
    curve = {"0": 0.1, "3": end}
    return {
        "arm": arm, "seed": seed, "cold": seed % 2, "exit": 0, "steps": 3, "end": end, **hops, "curve": curve,
        "curve3": curve, "game": {}, "cpu": {"0": 1.0, "3": 5.0}, **more,
    }  # fmt: skip


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (run, report):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
        monkeypatch.setattr(module, "HERE", tmp_path)
    OmegaConf.save(ABOUT, tmp_path / "toy.yaml")
    return tmp_path


def test_the_runner_plays_what_has_no_row_and_pairs_cold_starts(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (results / "toy.jsonl").write_text(json.dumps(row("b", 0)) + "\n")
    played: list[tuple[str, int]] = []

    def play(name: str, about: dict[str, Any], arm: str, seed: int, out: Path) -> None:
        played.append((arm, seed))
        with (results / "toy.jsonl").open("a") as file:
            file.write(json.dumps(row(arm, seed)) + "\n")
        if len(played) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(run, "play", play)
    taught: list[int] = []
    monkeypatch.setattr(run, "teach", lambda out, cold: taught.append(cold))
    monkeypatch.setattr(sys, "argv", ["run.py", "toy", "--out", str(results / "out")])
    with pytest.raises(KeyboardInterrupt):
        run.main()
    done = list(played)
    assert done[:2] == [("a", 0), ("c", 0)] and taught == [1]
    monkeypatch.setattr(run, "play", lambda *args: played.append((args[2], args[3])))
    left = [(arm, seed) for seed in (0, 1) for arm in "abc" if (arm, seed) not in {("b", 0), *done}]
    assert run.main() == 0 and played[len(done) :] == left
    assert run.missing("toy", ABOUT, 1, ["b"]) == []


def test_a_row_that_two_machines_made_counts_once(results: Path) -> None:
    lines = [row("a", 0, 0.1), row("b", 0, 0.2), row("a", 0, 0.9)]
    (results / "toy.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    known = [{**line, "cpu": {"0": 0.0, "3": 4.0}} for line in lines[:2]]  # what came before the start is not the run's
    assert run.rows("toy") == known and run.rows("none") == []


def test_a_run_that_went_on_has_no_cpu_seconds(results: Path) -> None:
    (results / "toy.jsonl").write_text(json.dumps(row("a", 0, 0.1, cpu={"2": 1.0, "3": 5.0})) + "\n")
    assert [found["cpu"] for found in run.rows("toy")] == [None]


@pytest.mark.parametrize("name", NAMES)
def test_every_arm_is_a_valid_configuration(name: str, tmp_path: Path) -> None:
    about = run.experiment(name)
    assert about["control"] in about["arms"] and about["seeds"] >= about["coldstarts"]
    for arm in about["arms"]:
        words = run.command(about, arm, about["coldstarts"] + 1, tmp_path / name / arm)
        taught = f"defaults.model={tmp_path / 'coldstarts' / '1'}" in words
        assert words[1].endswith("alone.py") and taught == (about["coldstarts"] > 1)
        load(words[3], [word for word in words[4:] if "=" in word])


def test_the_interval_is_that_of_drawing_cold_starts_then_seeds() -> None:
    assert report.interval({0: [0.2], 1: [0.2, 0.2]}) == pytest.approx((0.2, 0.2, 0.2))
    # Seeds alike within a cold start: all that varies is which of the four values are drawn; 256 equally likely ways.
    mean, low, high = report.interval({cold: [float(cold)] * 3 for cold in range(4)})
    means = [np.mean(drawn) for drawn in itertools.product(range(4), repeat=4)]
    assert (mean, low, high) == (1.5, *np.quantile(means, [0.025, 0.975]))
    # One cold start: seeds only, as the plain bootstrap of a mean.
    values = list(np.random.default_rng(1).normal(size=400))
    mean, low, high = report.interval({0: values})
    wide = 1.96 * np.std(values) / 20
    assert (high - mean, mean - low) == pytest.approx((wide, wide), rel=0.1)


def test_pairs_are_of_one_seed_and_equal_compute_reads_both_curves_at_the_cheaper_one() -> None:
    found = [row("a", 0, 0.5), row("a", 1, 0.6), row("b", 0, 0.7), row("b", 2, 0.9)]
    assert report.paired(found, "b", "a", report.at_end("end")) == {0: [pytest.approx(0.2)]}
    assert report.paired([*found, row("b", 1, 0.7, start=0.2)], "b", "a", report.at_end("end")).keys() == {0}
    dear = row("b", 0, 0.9, cpu={"0": 1.0, "3": 9.0})
    # At 5 s, half of its way from 0.1 to 0.9, it has 0.5; the control has ended with 0.5.
    assert report.at_equal_compute("curve")(dear, found[0]) == pytest.approx(0.0)
    assert report.at_equal_compute("curve")({**dear, "cpu": None}, found[0]) is None


def test_the_pages_say_what_was_run(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [row("a", 0), row("c", 0, 0.4, corrupted_solver=0.25)]
    (results / "toy.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(sys, "argv", ["report.py"])
    assert report.main() == 0
    text = (results / "toy.md").read_text()
    assert "| c | 1 | -0.100 |" in text and "| 0.250 |" in text and "run.py toy" in text
    assert "[toy](toy.md) | T | `a`, `b`, `c` | 2 of 6 | None. |" in (results / "README.md").read_text()
    assert (results / "toy.svg").read_text().count("<polyline") == 2
