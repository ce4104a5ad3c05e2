"""`ssp warmup`: traces become a policy that an evaluation and a run start from, by either learner; and what it
refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lessons
import pytest
from trainruns import MARK, PATIENCE, POLICY, REPO, Cluster, end_marked, run, until
from transformers import AutoModelForCausalLM, AutoTokenizer

from launch import eval as evaluate
from launch import warmup
from launch.main import COMMANDS
from launch.main import main as console
from ssp.game import protocols

CHEAP = [f"defaults.model={POLICY}", "warmup.batch=8", "solver.learner.lr=2e-3"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lessons.write(tmp_path_factory.mktemp("lessons") / "traces.jsonl", 20)


@contextmanager
def command(cluster: Cluster, data: Path, out: Path, *settings: str) -> Iterator[subprocess.Popen[str]]:
    """A running `ssp warmup`, of which nothing is left afterwards."""
    mark = uuid.uuid4().hex
    words = [sys.executable, "-u", "-m", "launch.main", "warmup", *CHEAP, f"warmup.data={data}", "--out", str(out)]
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


def taught(cluster: Cluster, data: Path, out: Path, *settings: str) -> str:
    with command(cluster, data, out, *settings) as process:
        said, _ = process.communicate(timeout=2 * PATIENCE)
        assert process.returncode == 0, said
        return said


@pytest.fixture(scope="module")
def policy(ray_cluster: Cluster, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What three updates of the torch learner make."""
    out = tmp_path_factory.mktemp("warm") / "torch"
    said = taught(ray_cluster, data, out)
    before, after = said.split("held-out ")[1].split(" nats")[0].split(" -> ")
    assert "3 updates on 19 episodes" in said and float(after) < float(before)
    return out


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.covers("SR-08")
def test_an_evaluation_and_a_run_start_from_the_written_folder(
    policy: Path, ray_cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = json.loads((policy / "ssp.json").read_text())
    assert record["role"] == "solver" and {**record, **protocols.get("mini").mark} == record
    assert evaluate.main(["--policy", str(policy), "--per-hop", "4"]) == 0
    assert str(policy) in capsys.readouterr().out
    with run(tmp_path / "run", "steps=1", f"solver.model={policy}", env=ray_cluster.env) as made:
        made.ends_well()
        assert made.steps() == 1


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "told",
    [signal.SIGINT, *(pytest.param(other, marks=pytest.mark.nightly) for other in (signal.SIGTERM, signal.SIGHUP))],
)
def test_a_policy_is_there_after_ctrl_c_and_the_same_command_goes_on(
    ray_cluster: Cluster, data: Path, tmp_path: Path, told: signal.Signals
) -> None:
    out, long = tmp_path / "warm", "warmup.epochs=40"
    with command(ray_cluster, data, out, long) as process:
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
    assert list(tmp_path.iterdir()) == [out]
    assert AutoTokenizer.from_pretrained(out).encode("<search>") and AutoModelForCausalLM.from_pretrained(out)
    said = taught(ray_cluster, data, out, long)
    assert "it goes on from update" in said and "120 updates on 19 episodes" in said
    assert list(tmp_path.iterdir()) == [out] and "warmup" not in json.loads((out / "ssp.json").read_text())


def test_what_it_refuses_before_anything_starts(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: object) -> None:
        raise AssertionError("started")

    monkeypatch.setattr(warmup, "_run", never)
    out = ["--out", str(tmp_path / "warm")]
    settings = [*CHEAP, f"warmup.data={data}"]
    for words, said in (
        ([*CHEAP, *out], "warmup.data names traces"),
        ([*CHEAP, *out, f"warmup.data={tmp_path}"], "a run's folder"),
        ([*settings, *out, "--role", "proposer"], "only of the solver"),
        ([*settings, *out, "--role", "judge"], "invalid choice"),
    ):
        assert console(["warmup", *words]) == 2, words
        assert said in capsys.readouterr().err
    assert "warmup" in COMMANDS and not (tmp_path / "warm").exists()
