"""`ssp warmup`, and `ssp train` with warmup.data: traces become a policy that an evaluation and a run start from, by
either learner; and what is refused."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import lessons
import pytest
from trainruns import MARK, PATIENCE, POLICY, REPO, Cluster, end_marked, until
from trainruns import run as trains
from transformers import AutoModelForCausalLM, AutoTokenizer

from launch import eval as evaluate
from launch import warmup
from launch.main import COMMANDS
from launch.main import main as console
from ssp.base.errors import Fault, InputError, SspError
from ssp.game import protocols
from ssp.record import runfolder
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.selfplay.settings import load
from ssp.selfplay.workers import build
from ssp.telemetry.console import Console

Taught = Callable[[signal.Signals], tuple[Path, str]]
"""The folder after that signal and the command that went on, and what this one said."""
CHEAP = [f"defaults.model={POLICY}", "warmup.batch=4", "warmup.lr=3e-4", "warmup.epochs=12"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lessons.write(tmp_path_factory.mktemp("lessons") / "traces.jsonl", 20, every=True)


@contextmanager
def command(cluster: Cluster, data: Path, out: Path, *settings: str, told: int = 0) -> Iterator[subprocess.Popen[str]]:
    """A running `ssp warmup`, of which nothing is left afterwards. One that is `told` SIGTERM ignores SIGINT, as a shell has
    its background jobs do."""
    mark = uuid.uuid4().hex
    words = [sys.executable, "-u", "-m", "launch.main", "warmup", *CHEAP, f"warmup.data={data}", "--out", str(out)]
    if told == signal.SIGTERM:
        words = ["sh", "-c", 'trap "" INT; exec "$0" "$@"', *words]
    environment = {**os.environ, **cluster.env, MARK: mark, "PYTHONPATH": str(REPO)}
    process = subprocess.Popen(
        [*words, *settings], cwd=out.parent, env=environment, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        end_marked(mark)


@pytest.fixture(scope="module")
def interrupted(ray_cluster: Cluster, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Taught:
    """A policy that is there after a signal, and to which the same command has gone on."""

    def taught(told: signal.Signals) -> tuple[Path, str]:
        out, settings = tmp_path_factory.mktemp("warm") / "torch", "solver.learner.packing=true"
        with command(ray_cluster, data, out, settings, told=told) as process:
            assert process.stdout is not None
            heard = ""
            while "step 4/" not in heard:
                line = process.stdout.readline()
                assert line, heard
                heard += line
            assert "ETA" in heard.splitlines()[-1], heard
            process.send_signal(told)
            rest, _ = process.communicate(timeout=PATIENCE)
            assert process.returncode == 130 and "Traceback" not in rest and "interrupted" in rest, rest
            assert f"the policy so far is {out}" in rest
            until("its learner has ended", lambda: not ray_cluster.actors(f"warmup-{process.pid}"), 60.0)
        assert list(out.parent.iterdir()) == [out]
        assert AutoTokenizer.from_pretrained(out).encode("<search>") and AutoModelForCausalLM.from_pretrained(out)
        with command(ray_cluster, data, out, settings) as process:
            said, _ = process.communicate(timeout=2 * PATIENCE)
            assert process.returncode == 0, said
        return out, said

    return cache(taught)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "told",
    [signal.SIGTERM, *(pytest.param(other, marks=pytest.mark.nightly) for other in (signal.SIGINT, signal.SIGHUP))],
)
def test_a_policy_is_there_after_ctrl_c_and_the_same_command_goes_on(interrupted: Taught, told: signal.Signals) -> None:
    out, said = interrupted(told)
    before, after = said.split("held-out ")[1].split(" nats")[0].split(" -> ")
    assert "it goes on from update" in said and "updates on 57 episodes" in said and float(after) < float(before)
    assert list(out.parent.iterdir()) == [out] and "warmup" not in json.loads((out / "ssp.json").read_text())


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.covers("SR-08")
def test_an_evaluation_and_a_run_start_from_the_written_folder(
    interrupted: Taught, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, _ = interrupted(signal.SIGTERM)
    record = json.loads((policy / "ssp.json").read_text())
    assert record["role"] == "solver" and {**record, **protocols.get("mini").mark} == record
    assert evaluate.main(["--policy", str(policy), "--per-hop", "4"]) == 0
    assert str(policy) in capsys.readouterr().out
    assert console(["train", "--dry-run", f"solver.model={policy}"]) == 0


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("ctrl_c", [False, pytest.param(True, marks=pytest.mark.nightly)])  # in CI: that of the command
def test_a_run_starts_from_traces_in_one_command_also_after_ctrl_c(
    ray_cluster: Cluster, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], ctrl_c: bool
) -> None:
    """The solver and the frozen verifier start from what was taught, the proposer from what it alone learned on from there,
    and a replay finds both."""
    proposers = [row for row in map(json.loads, data.read_text().splitlines()) if row.get("role") == "proposer"]
    both = tmp_path / "both.jsonl"
    both.write_text(data.read_text() + "".join(json.dumps({**row, "alone": True}) + "\n" for row in proposers))
    folder, settings = tmp_path / "run", [*CHEAP, f"warmup.data={both}", "steps=1", "save.every=1", "resume=auto"]
    if ctrl_c:
        with trains(folder, *settings, env=ray_cluster.env) as made:
            made.until("the warm start", lambda: "step 4/" in made.text(), every=0.01)
            made.stops()
            assert f"the policy so far is {folder}/start" in made.text() and not (folder / "ledger.db").exists()
        with trains(folder, *settings, "warmup.lr=1e-3", env=ray_cluster.env) as other:
            assert other.wait() == 2 and "warmup.lr was 0.0003 and is now 0.001" in other.text()
    with trains(folder, *settings, env=ray_cluster.env) as again:
        again.ends_well()
        assert ("it goes on from update" in again.text()) is ctrl_c
    run, cfg = RunFolder(folder), RunReader(RunFolder(folder)).cfg
    assert [build.model_dir(cfg, role, run).name for role in ("solver", "proposer")] == ["start", "start-proposer"]
    assert (
        "updates on 57 episodes" in again.text() and "updates on 19 episodes" in again.text()
    )  # one of 20 is held out
    records = [json.loads((folder / name / "ssp.json").read_text()) for name in ("start", "start-proposer")]
    assert [record["role"] for record in records] == ["solver", "proposer"]
    capsys.readouterr()
    assert console(["replay", str(folder), "--all", "--limit", "12"]) == 0
    assert "12 of 12 the same" in capsys.readouterr().out


def test_what_it_refuses_before_anything_starts(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: object) -> None:
        raise AssertionError("started")

    monkeypatch.setattr(warmup, "teach", never)
    out = ["--out", str(tmp_path / "warm")]
    alone, solo, own = lessons.write(tmp_path / "alone.jsonl", 2), tmp_path / "solo.jsonl", tmp_path / "own.jsonl"
    solo.write_text(json.dumps({**lessons.rows(1)[0], "alone": True}) + "\n")
    own.write_text(json.dumps({**lessons.every_role(1)[1], "alone": True}) + "\n")
    settings = [*CHEAP, f"warmup.data={data}"]
    for words, said in (
        ([*CHEAP, *out], "warmup.data"),
        ([*CHEAP, *out, "--data", str(data), "--epochs", "2"], "takes warmup.epochs=N"),
        ([*CHEAP, *out, f"warmup.data={tmp_path}"], "a run's folder"),
        ([*CHEAP, *out, "warmup.data=world:train"], "a generated world has corpus, targets"),
        ([*CHEAP, *out, f"warmup.data={alone}", "--role", "proposer"], "only of: solver"),
        ([*CHEAP, *out, f"warmup.data={solo}"], "true only of a proposer's trace"),
        ([*CHEAP, *out, f"warmup.data={own}"], "only of: proposer, alone"),
        ([*settings, *out, "--role", "judge"], "invalid choice"),
        (["--config", "spice-qwen3-4b", "defaults.model=tiny", f"warmup.data={data}", *out], "challenger, reasoner"),
    ):
        assert console(["warmup", *words]) == 2, words
        assert said in capsys.readouterr().err
    with (tmp_path / ".warm.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert console(["warmup", *settings, *out]) == 2, "of two, one would remove what the other has just saved"
    assert "one warm start at a time" in capsys.readouterr().err
    assert "warmup" in COMMANDS and not (tmp_path / "warm").exists()


def test_what_a_run_still_owes_is_taken_or_refused(data: Path, tmp_path: Path) -> None:
    """A proposer's course that was begun is never left out, and nothing is learned from what the game would refuse."""
    own = tmp_path / "own.jsonl"
    own.write_text(data.read_text() + json.dumps({**lessons.every_role(1)[1], "alone": True}) + "\n")
    cfg, run = load("quickstart", [*CHEAP, f"warmup.data={own}"]), RunFolder(tmp_path / "run")
    assert [(course.role, course.saves.out.name) for course in warmup.due(cfg, run)] == [
        ("solver", "start"),
        ("proposer", "start-proposer"),
    ]
    shutil.copytree(POLICY, run.start)
    assert [course.role for course in warmup.due(cfg, run)] == ["proposer"]
    record = json.loads((run.start / "ssp.json").read_text())
    begun = {**record, "step": 1, "warmup": {"what": "", "heldout": []}}
    shutil.copytree(POLICY, run.proposer_start)
    (run.proposer_start / "ssp.json").write_text(json.dumps(begun))
    with pytest.raises(InputError, match="the same data, model and settings"):
        warmup.due(cfg, run)
    own.write_text(data.read_text())
    with pytest.raises(InputError, match="proposer. Found: only of"):
        warmup.due(cfg, run)
    own.unlink()
    with pytest.raises(InputError, match="jsonl file of traces"):
        warmup.due(cfg, run)
    with pytest.raises(InputError, match=r"has weights of its own. Found: policy=shared, layout=separate"):
        warmup.due(load("quickstart", [*CHEAP, f"warmup.data={data}", "defaults.policy=shared"]), run)
    (run.start / "ssp.json").write_text(json.dumps({**record, "protocol_version": 99}))
    with pytest.raises(InputError, match="version"):
        warmup.due(cfg, run)


def test_who_is_given_questions_learns_no_other_role(data: Path, tmp_path: Path) -> None:
    roles = {}
    for given in ([], ["game.questions=dataset", "data.questions=world:train"]):
        cfg = load("quickstart", [*CHEAP, f"warmup.data={data}", *given])
        (course,) = warmup.due(cfg, RunFolder(tmp_path / "run"))
        roles[cfg.game.questions] = {episode.role for episode in course.episodes}
    assert roles["dataset"] == {"solver"} < roles["proposer"]


def test_a_learner_that_dies_says_what_is_saved_and_what_goes_on(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = load("quickstart", [*CHEAP, f"warmup.data={data}", *warmup.UNUSED])
    course = warmup.prepare(cfg, warmup.ALL, tmp_path / "warm")

    async def dies(*args: object) -> None:
        course.saves.out.mkdir()
        raise Fault("learner_died")

    monkeypatch.setattr(warmup, "_taught", dies)
    with pytest.raises(SspError, match=f"learner_died.* Next: the same command goes on, from {tmp_path}/warm"):
        warmup.teach(course, Console(), "the same command")


@pytest.mark.parametrize(("dtype", "copies"), [("float32", 8), ("bfloat16", 16)])
def test_room_is_asked_for_float32_less_what_is_there(
    data: Path, tmp_path: Path, dtype: str, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, asked = tmp_path / "model", list[int]()
    shutil.copytree(POLICY, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "dtype": dtype}))
    record = json.loads((model / "ssp.json").read_text())
    (model / "ssp.json").write_text(json.dumps({**record, "sha256": {}}))
    monkeypatch.setattr(runfolder, "check_space", lambda out, needed: asked.append(needed))
    settings = [f"defaults.model={model}", f"warmup.data={data}", "solver.warmup_steps=4", "learner.schedule=cosine"]
    cfg = load("quickstart", [one.replace("learner.", "defaults.learner.") for one in settings])
    course = warmup.prepare(cfg, warmup.PROPOSER, tmp_path / "warm")
    assert course.cfg.solver.warmup_steps == 0, "the course is the learner's whole schedule"
    course.saves.out.mkdir()
    (course.saves.out / "optimizer.pt").write_bytes(b" " * 1000)
    entry = {"what": course.saves._what, "heldout": []}
    (course.saves.out / "ssp.json").write_text(json.dumps({"step": 1, "warmup": entry}))
    warmup.prepare(cfg, warmup.PROPOSER, tmp_path / "warm")
    whole = copies * sum(file.stat().st_size for file in model.iterdir())
    assert asked == [whole, whole - sum(file.stat().st_size for file in course.saves.out.iterdir())]
