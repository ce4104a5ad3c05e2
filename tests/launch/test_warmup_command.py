"""`ssp warmup`, and `ssp train` with warmup.data: traces become a policy that an evaluation and a run start from, by
either learner; and what is refused."""

from __future__ import annotations

import json
import os
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
from ssp.game import protocols
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.selfplay.workers import build

Taught = Callable[[signal.Signals], tuple[Path, str]]
"""The folder after that signal and the command that went on, and what this one said."""
CHEAP = [f"defaults.model={POLICY}", "warmup.batch=4", "warmup.lr=3e-4", "warmup.epochs=40"]


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
def test_a_run_starts_from_traces_in_one_command_also_after_ctrl_c(
    ray_cluster: Cluster, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The solver and the frozen verifier start from what was taught, the proposer from what it alone learned on from there,
    and a replay finds both."""
    proposers = [row for row in map(json.loads, data.read_text().splitlines()) if row.get("role") == "proposer"]
    both = tmp_path / "both.jsonl"
    both.write_text(data.read_text() + "".join(json.dumps({**row, "alone": True}) + "\n" for row in proposers))
    folder, settings = tmp_path / "run", [*CHEAP, f"warmup.data={both}", "steps=1", "save.every=1", "resume=auto"]
    with trains(folder, *settings, env=ray_cluster.env) as made:
        made.until("the warm start", lambda: "step 4/" in made.text(), every=0.01)
        made.stops()
        assert f"the policy so far is {folder}/start" in made.text() and not (folder / "ledger.db").exists()
    with trains(folder, *settings, "warmup.lr=1e-3", env=ray_cluster.env) as other:
        assert other.wait() == 2 and "warmup.lr was 0.0003 and is now 0.001" in other.text()
    with trains(folder, *settings, env=ray_cluster.env) as again:
        again.ends_well()
        assert "it goes on from update" in again.text()
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
    ):
        assert console(["warmup", *words]) == 2, words
        assert said in capsys.readouterr().err
    assert "warmup" in COMMANDS and not (tmp_path / "warm").exists()
