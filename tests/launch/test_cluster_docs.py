"""The examples of docs/cluster.md: scripts that bash can read, manifests of the shape that KubeRay asks for. No Ray."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import yaml
from trainruns import MARK, REPO, end_marked, until

from actors.cluster import free
from ssp.selfplay.settings import load

PAGE = (REPO / "docs" / "cluster.md").read_text(encoding="utf-8")


def block(language: str, first: str) -> str:
    """The fenced block of the page that has the line `first`."""
    found = [text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if first in text]
    assert len(found) == 1
    return str(found[0])


STAND_INS = {
    "scontrol": "printf 'localhost\\nnode-b\\n'",
    # --relative=FIRST --nodes=COUNT --ntasks=COUNT --kill-on-bad-exit=0 COMMAND...; SIGTERM goes on to the tasks.
    "srun": """
tasks=()
trap 'kill -TERM "${tasks[@]}"' TERM
count="${2#--nodes=}"
shift 4
for ((task = 0; task < count; task++)); do SLURM_PROCID=$task "$@" & tasks+=("$!"); done
code=0
wait "${tasks[0]}" || code=$?
wait "${tasks[0]}" || code=$?
exit "$code"
""",
}
"""Commands of a SLURM node, as far as the script needs them."""

SSP = """
import os, signal, sys, types

sys.path.insert(0, {repo!r})
from launch import cluster, main

node = types.SimpleNamespace(folder="no folder", check=lambda: None, end=lambda keep, seconds=0.0: None)
cluster._start = lambda cfg, options: node


def train(cfg, config, lost):
    names = ("NNODES", "RANK", "MASTER_ADDR", "MASTER_PORT", "RAY_AUTH_TOKEN_PATH")
    said = " ".join(["all are there:", *map(os.environ.get, names), *sys.argv[1:]])
    print(said, file=sys.stderr)  # one text: the words of several would be written one by one, between the other node's
    signal.pause()
    return 0


cluster.train.train = train
sys.exit(main.main(sys.argv[1:]))
"""
"""`ssp` without Ray and without a run: its nodes meet, and rank 0 goes on until it is told to end."""


def _job_with_free_ports() -> int:
    """Number of a job whose two ports, by the script's arithmetic, nobody uses."""
    for job in range(os.getpid() % 10_000, 20_000):
        port = 20_000 + job % 10_000 * 2
        if free("127.0.0.1", port) and free("127.0.0.1", port + 1):
            return job
    raise AssertionError("no two free ports")


def test_the_slurm_script_brings_its_nodes_together_and_ends_with_rank_0(tmp_path: Path) -> None:
    """Two nodes that are one machine: each finds its rank and the head, they meet with the token that rank 0 makes, rank 0
    alone hears of the time limit, and the other one hears it from rank 0."""
    script, home, tools = tmp_path / "train.sbatch", tmp_path / "home", tmp_path / "tools"
    script.write_text(block("sh", "# train.sbatch"))
    subprocess.run(["bash", "-n", str(script)], check=True)
    directives = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", script.read_text(), re.MULTILINE))
    assert directives["ntasks-per-node"] == "1" and directives["signal"] == "B:TERM@600"
    (home / ".venv" / "bin").mkdir(parents=True)
    tools.mkdir()
    programs = {tools / name: f"#!/usr/bin/env bash\n{body}\n" for name, body in STAND_INS.items()}
    programs[home / ".venv" / "bin" / "ssp"] = f"#!{sys.executable}\n{SSP.format(repo=str(REPO))}"
    for path, body in programs.items():
        path.write_text(body)
        path.chmod(0o755)
    number = _job_with_free_ports()
    slurm = {
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_ID": str(number),
        "SLURM_JOB_NAME": "x",
        "SLURM_JOB_NODELIST": "n[a-b]",
        "RAY_AUTH_MODE": "",
        MARK: (mark := uuid.uuid4().hex),
    }
    environment = {**os.environ, **slurm, "SSP_HOME": str(home), "PATH": f"{tools}:{os.environ['PATH']}"}
    output = tmp_path / "output.txt"
    with output.open("wb") as file:
        job = subprocess.Popen(["bash", str(script), "steps=3"], env=environment, stdout=file, stderr=file)

    def met() -> bool:
        assert job.poll() is None, output.read_text()
        return "all are there" in output.read_text()

    try:
        until("the nodes have met", met)
        job.terminate()  # as SLURM does before the time limit: the batch script alone
        assert job.wait(60.0) == 130, output.read_text()
    finally:
        end_marked(mark)
    said = output.read_text()
    command = "cluster --config gpu32 run.name=ssp-x resume=auto steps=3"
    port = 20_000 + number % 10_000 * 2
    assert f"all are there: 2 0 localhost {port} {home / 'ray_token'} {command}" in said
    assert f"rank 1 of 2 is in the cluster of 127.0.0.1:{port}" in said
    assert "the run has ended (exit code 130 on rank 0)" in said
    load("gpu32", command.split()[3:])


def test_the_kuberay_job_starts_a_run_on_the_pods_that_it_asks_for() -> None:
    job = yaml.safe_load(block("yaml", "# rayjob.yaml"))
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    program, _, settings = job["spec"]["entrypoint"].partition(" --config ")
    name, *overrides = settings.split()
    assert program == "python -m launch.train"
    made = job["spec"]["rayClusterSpec"]
    assert made["authOptions"] == {"mode": "token"}
    (workers,) = made["workerGroupSpecs"]
    nodes = load(name, overrides).placement.nodes
    assert nodes.startswith(f"{1 + workers['replicas']}x")  # the head pod computes too
