"""What strangers' machines, disks and hands do to a run: each is refused with its rule, or said and gone on without."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import ray
from trainruns import POLICY, REPO

from actors import cluster
from launch import doctor, train
from launch.cli import run
from ssp.base.errors import InputError, SspError
from ssp.capacity.placement import machine
from ssp.game.world import World
from ssp.record import runfolder
from ssp.record.ledger.book import Ledger
from ssp.record.manifest import seal
from ssp.record.runfolder import RunFolder
from ssp.selfplay import scene as scenes
from ssp.selfplay.checkpoint import SavedState
from ssp.selfplay.health import HealthWatch
from ssp.selfplay.scene import Scene, read_scene
from ssp.selfplay.settings import load
from ssp.telemetry.runlog import RunLog

COSINE = "solver.learner.schedule=cosine"


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    """Settings of a run on questions, with a corpus and a start model that a test may change."""
    world = World(5)  # the policy knows its words
    names = list(world.entities)
    rows = [{"id": f"q{n}", "question": f"{names[n]} founder", "golden_answers": [names[-n]]} for n in range(6)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:3]))
    texts = [{"id": one.id, "contents": one.contents} for one in world.documents()[:20]]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    shutil.copytree(POLICY, tmp_path / "model")
    (tmp_path / "model" / "ssp.json").unlink()  # as a stranger's: nothing says how its files were written
    return [
        "game.questions=dataset", f"data.questions={tmp_path / 'q.jsonl'}", f"data.corpus={tmp_path / 'c.jsonl'}",
        f"data.eval=[{{name: mine, file: {tmp_path / 'e.jsonl'}, corpus: {tmp_path / 'c.jsonl'}}}]",
        f"defaults.model={tmp_path / 'model'}", "solver.batch=6", f"run.dir={tmp_path / 'run'}",
    ]  # fmt: skip


def shorter(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[::2]))


CHANGES: list[tuple[str, Callable[[Path], None], str]] = [
    ("nothing", lambda folder: None, ""),
    ("corpus", lambda folder: shorter(folder / "c.jsonl"), "data.corpus"),
    ("evaluation", lambda folder: shorter(folder / "e.jsonl"), "data.eval.mine.file"),
    ("model", lambda folder: (folder / "model" / "chat_template.jinja").write_text("{{ x }}") and None, "solver.model"),
]


@pytest.mark.parametrize(("what", "change", "named"), CHANGES, ids=[what for what, *_ in CHANGES])
def test_what_a_run_goes_on_with_is_what_it_began_with(
    given: list[str], tmp_path: Path, what: str, change: Callable[[Path], None], named: str
) -> None:
    kept = json.loads(json.dumps(read_scene(load("quickstart", given)).targets().state(0)))
    change(tmp_path)
    again = read_scene(load("quickstart", given)).targets()
    if not named:
        again.restore(kept)
        return
    with pytest.raises(InputError) as refused:
        again.restore(kept)
    assert "was started with" in refused.value.rule and named in str(refused.value.found)


def test_a_run_of_before_which_kept_no_digests_goes_on(given: list[str]) -> None:
    targets = read_scene(load("quickstart", given)).targets()
    targets.restore({name: value for name, value in targets.state(0).items() if name != "beside"})


@pytest.mark.parametrize(
    ("settings", "steps", "goes_on"),
    [([], 8, True), ([COSINE], 4, True), ([COSINE], 8, False), ([COSINE], 3, False)],
)
def test_steps_stay_where_a_rate_falls_until_them(
    tmp_path: Path, settings: list[str], steps: int, goes_on: bool
) -> None:
    typed = ["game.questions=dataset", "data.questions=q.jsonl", f"run.dir={tmp_path / 'run'}", *settings]
    folder = runfolder.open_run(load("quickstart", [*typed, "steps=4"]), "quickstart")
    folder.write_state(asdict(SavedState(step=2)))
    again = load("quickstart", [*typed, f"steps={steps}", "resume=auto"])
    if goes_on:
        assert runfolder.locate(again, "quickstart").resumed
        return
    with pytest.raises(InputError, match=f"steps was 4 and is now {steps}"):
        runfolder.locate(again, "quickstart")


@pytest.mark.parametrize("damaged", ["", "model.safetensors", "optimizer.pt"])
def test_the_doctor_asks_of_a_checkpoint_what_a_resume_asks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damaged: str
) -> None:
    folder = RunFolder(tmp_path)
    path = folder.checkpoint("solver", 1)
    path.mkdir(parents=True)
    for name in ("model.safetensors", "optimizer.pt"):
        (path / name).write_bytes(bytes(1000))
    seal(path, {"version": 1, "run_step": 1, "step": 1})
    with closing(Ledger(folder.ledger)) as ledger:
        version = ledger.next_version("solver", 1, 1)
        ledger.create([{"id": "a", "game_id": "g", "role": "solver"}])
        ledger.advance([{"id": "a", "state": "queued", "outcome": "scored", "reward": 1.0}])
        ledger.commit("solver", 1, 1, version, ["a"])
    folder.write_state(asdict(SavedState(1, {"solver": folder.relative(path)}, {"solver": version})))
    if damaged:
        os.truncate(path / damaged, 500)
    assert doctor.main(["--ledger", str(folder.ledger)]) == int(bool(damaged))
    said = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("checkpoint: "))
    assert damaged in said if damaged else said == "checkpoint: holds"


@pytest.mark.parametrize("variable", ["TMPDIR", "RAY_TMPDIR"])
def test_a_long_temporary_folder_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    long = tmp_path / "slurm_jobdir" / "1234567" / "node0017" / "training_of_a_search_agent"
    long.mkdir(parents=True)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setenv(variable, str(long))
    monkeypatch.setattr(ray, "init", lambda **options: pytest.fail("Ray was started"))
    cfg = load("quickstart", [f"run.dir={tmp_path / 'run'}"])
    for start in (lambda: cluster.connect(cfg.ray), lambda: train.train(cfg, "quickstart")):
        with pytest.raises(InputError, match="path of at most") as refused:
            start()
        assert str(len(os.fsencode(long / "ray"))) in str(refused.value.found)
        assert "RAY_TMPDIR" in refused.value.next_step
    assert not (tmp_path / "run").exists()


def test_gpus_that_are_not_there_are_asked_about_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(machine, "gpu_bytes", list)
    monkeypatch.setattr(scenes, "read_scene", lambda cfg: pytest.fail("data and models were read"))
    on_gpus = ["placement.engine_gpus=1", "placement.learner_gpus=1", f"run.dir={tmp_path / 'run'}"]
    with pytest.raises(InputError, match="has its GPUs"):
        train.train(load("quickstart", on_gpus), "quickstart")


@pytest.mark.parametrize(("rows", "left"), [([2], False), ([], True), ([1], True)])
def test_of_a_run_that_has_ended_it_is_said_that_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list[int], left: bool
) -> None:
    """Without its last evaluation, which a kill may have prevented, it goes on."""

    def read(cfg: Any) -> Scene:
        raise SspError("it goes on")

    monkeypatch.setattr(scenes, "read_scene", read)
    typed = ["steps=2", f"run.dir={tmp_path / 'run'}", "resume=auto"]
    folder = runfolder.open_run(load("quickstart", typed), "quickstart")
    folder.write_state(asdict(SavedState(step=2)))
    log = RunLog(folder.path)
    for step in rows:
        log.write(step, "eval", {"eval/accuracy": 0.5})
    log.close()
    assert run(lambda _: train.train(load("quickstart", typed), "quickstart"), []) == int(left)
    told = capsys.readouterr()
    assert ("it goes on" in told.err) is left and ("nothing is left to play" in told.out) is not left


PACKAGELESS = [["ssp", "--version"], ["ssp", "train", "--dry-run"], ["ssp", "board", "nowhere"], ["launch.ask"]]


@pytest.mark.parametrize("command", PACKAGELESS)
def test_a_python_without_the_packages_says_which_one_has_them(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", *command],
        env={**os.environ, "PYTHONPATH": str(REPO)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    if "--version" in command:
        assert done.returncode == 0 and done.stdout.startswith("ssp ")
    else:
        assert done.returncode == 2 and sys.executable in done.stderr and "Next: " in done.stderr


TYPED = [
    ("resume=step:", "resume", "step:"), ("run.name=007", "run.name", "007"), ("run.name=1e3", "run.name", "1e3"),
    ("run.name=on", "run.name", "on"), ("run.name='\"a: b\"'".replace("'", ""), "run.name", "a: b"),
    ("seed=007", "seed", 7), ("run.name=", "run.name", ""),
]  # fmt: skip


@pytest.mark.parametrize(("typed", "key", "value"), TYPED)
def test_text_that_is_typed_stays_text(typed: str, key: str, value: object) -> None:
    found: Any = load("quickstart", [typed])
    for part in key.split("."):
        found = getattr(found, part)
    assert found == value


def test_a_step_without_a_number_is_refused_by_its_rule() -> None:
    with pytest.raises(InputError, match="names the step of a kept checkpoint"):
        runfolder.locate(load("quickstart", ["resume=step:"]), "quickstart")


def test_a_ledger_that_somebody_holds_is_a_paragraph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(Ledger(tmp_path / "ledger.db")), closing(sqlite3.connect(tmp_path / "ledger.db")) as one:
        one.execute("BEGIN EXCLUSIVE")
        with closing(sqlite3.connect(tmp_path / "ledger.db", timeout=0.0)) as other:
            assert run(lambda _: other.execute("BEGIN IMMEDIATE") and 0, []) == 2
    told = capsys.readouterr().err
    assert "Traceback" not in told and "resume=auto" in told


def test_what_a_killed_writer_left_goes_at_the_next_start(tmp_path: Path) -> None:
    typed = ["game.questions=dataset", "data.questions=q.jsonl", f"run.dir={tmp_path / 'run'}", "resume=auto"]
    folder = runfolder.open_run(load("quickstart", typed), "quickstart")
    folder.write_state(asdict(SavedState(step=2)))
    os.close(folder._lock or 0)
    left = [folder.path / ".config.yaml.77.part", folder.checkpoints / ".state.json.77.part"]
    left.append(folder.episodes / ".solver-000001-i1-0.0.parquet.77.part")
    for file in left:
        file.write_bytes(b"half")
    runfolder.open_run(load("quickstart", typed), "quickstart")
    assert [file for file in left if file.exists()] == [] and folder.state.is_file()


@pytest.mark.parametrize(("voided", "alarms"), [(0.0, 1), (0.02, 1), (0.8, 0), (1.0, 0)])
def test_an_outage_that_takes_the_searches_is_no_collapse(voided: float, alarms: int) -> None:
    cfg = load("quickstart", [])
    watch, told = HealthWatch(cfg.health, cfg.roles), []
    for step in range(60):
        out = step >= 30
        row = {"searches": 0.1 if out else 2.0, "reward/all": 0.5, **({"voided": voided} if out else {})}
        told += watch.see("solver", step, row)
    assert len(told) == alarms


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"), OSError(122, "Disk quota exceeded"), OSError(5, "Input/output error"),
        OSError(116, "Stale file handle"), sqlite3.OperationalError("database or disk is full"),
        sqlite3.OperationalError("disk I/O error"), RuntimeError("Error while serializing: I/O error (os error 28)"),
    ],
    ids=str,
)  # fmt: skip
def test_a_disk_that_fails_is_a_paragraph_with_the_next_step(
    capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fails(_: Any) -> int:
        raise error

    assert run(fails, []) == 2
    told = capsys.readouterr().err
    assert "Traceback" not in told and "resume=auto" in told
