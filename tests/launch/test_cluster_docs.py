"""The examples of docs/cluster.md: scripts that bash can read, manifests of the shape that KubeRay asks for. No Ray."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml
from trainruns import REPO

from ssp.selfplay.settings import load

PAGE = (REPO / "docs" / "cluster.md").read_text(encoding="utf-8")


def block(language: str, first: str) -> str:
    """The fenced block of the page that has the line `first`."""
    found = [text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if first in text]
    assert len(found) == 1
    return str(found[0])


def test_the_slurm_script_is_bash_and_starts_one_task_a_node(tmp_path: Path) -> None:
    script = tmp_path / "train.sbatch"
    script.write_text(block("sh", "# train.sbatch"))
    subprocess.run(["bash", "-n", str(script)], check=True)
    directives = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", script.read_text(), re.MULTILINE))
    assert directives["ntasks-per-node"] == "1" and directives["signal"] == "B:TERM@600"
    assert "settings=(--config gpu32 run.name=" in script.read_text()


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
