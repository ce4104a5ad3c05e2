"""The examples beside docs/cluster.md: a script that bash can read, a manifest of the shape that KubeRay asks for. No Ray."""

from __future__ import annotations

import re
import subprocess

import yaml
from trainruns import REPO

from ssp.selfplay.settings import load


def test_the_slurm_script_is_bash_and_starts_one_task_a_node() -> None:
    script = REPO / "launch" / "train.sbatch"
    subprocess.run(["bash", "-n", str(script)], check=True)
    text = script.read_text(encoding="utf-8")
    directives = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", text, re.MULTILINE))
    assert directives["ntasks-per-node"] == "1" and directives["signal"] == "B:TERM@600"
    assert "settings=(--config gpu32 run.name=" in text


def test_the_kuberay_job_starts_a_run_on_the_pods_that_it_asks_for() -> None:
    job = yaml.safe_load((REPO / "launch" / "rayjob.yaml").read_text(encoding="utf-8"))
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    program, _, settings = job["spec"]["entrypoint"].partition(" --config ")
    name, *overrides = settings.split()
    assert program == "python -m launch.train"
    made = job["spec"]["rayClusterSpec"]
    assert made["authOptions"] == {"mode": "token"}
    (workers,) = made["workerGroupSpecs"]
    nodes = load(name, overrides).placement.nodes
    assert nodes.startswith(f"{1 + workers['replicas']}x")  # the head pod computes too
