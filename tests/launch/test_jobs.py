"""`ray job submit` watched and stopped as a user would; what travels: test_train.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from trainruns import PATIENCE, REPO, SMALL, Cluster, Left, ledger_is_sound, until

from ssp.telemetry.figures import COUNTER, FIGURES, exported, find

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

RAY = str(Path(sys.executable).parent / "ray")


def _job(cluster: Cluster, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [RAY, "job", words[0], "--address", cluster.dashboard, *words[1:]]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=400, check=False)


def _status(cluster: Cluster, job: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{cluster.dashboard}/api/jobs/{job}", timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def _metrics(cluster: Cluster) -> str:
    """What Prometheus would read, from where Ray's discovery file sends it."""
    targets = json.loads((cluster.folder / "prom_metrics_service_discovery.json").read_text())
    pages = []
    for target in {address for entry in targets for address in entry["targets"]}:
        with urllib.request.urlopen(f"http://{target}/metrics", timeout=60) as answer:
            pages.append(answer.read().decode())
    return "\n".join(pages)


def _untold(made: Left, page: str) -> set[tuple[str, str]]:
    """Series and role of every figure that the run has, and of every live one, that the page does not show."""
    wanted = {(exported(figure), "") for figure in FIGURES if "live" in figure.roles}
    for role in ("game", "proposer", "solver", "eval"):
        for row in made.rows(role):
            figures = {name: value for name, value in row.items() if name not in ("role", "time", "not_finite")}
            found = [(find(name, role)[0], value) for name, value in figures.items()]
            wanted |= {(exported(figure), role) for figure, value in found if value or figure.kind != COUNTER}
    lines = [line for line in page.splitlines() if 'run="job"' in line]
    told = {(line.partition("{")[0], line.partition('role="')[2].partition('"')[0]) for line in lines}
    return wanted - told - {(series, "") for series, _ in told}


@pytest.mark.nightly
@pytest.mark.covers("RS-10")
def test_a_job_is_watched_and_stopped_and_has_saved(ray_cluster: Cluster, tmp_path: Path) -> None:
    """The dashboard's API lists its actors by name, its figures are at the metrics endpoint, and
    `ray job stop` is Ctrl-C."""
    made = Left(tmp_path / "home" / "runs" / "job")
    stays = {
        "SSP_HOME": str(tmp_path / "home"),
        "RAY_JOB_STOP_WAIT_TIME_S": "200",
        "SSP_CACHE": os.environ["SSP_CACHE"],
    }
    done = _job(
        ray_cluster, "submit", "--no-wait", "--submission-id", "stopped", "--working-dir", ".",
        "--runtime-env-json", json.dumps({"env_vars": stays}), "--", sys.executable, "-m", "launch.train",
        "--config", "configs/quickstart.yaml", "run.name=job", *SMALL, "steps=4000",
        cwd=REPO,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr

    def one_step() -> bool:
        assert _status(ray_cluster, "stopped")["status"] in ("PENDING", "RUNNING")
        return made.steps() >= 1

    until("the first step", one_step, PATIENCE, every=1.0)
    assert {"proposer-0", "solver-0", "judge-0", "learner-solver-0", "ledger-0"} <= ray_cluster.actors("job").keys()
    until("every series of the run", lambda: not _untold(made, _metrics(ray_cluster)), 90.0, 1.0)

    assert _job(ray_cluster, "stop", "stopped", cwd=REPO).returncode == 0
    found = _status(ray_cluster, "stopped")
    assert found["status"] == "STOPPED", found
    assert made.saved() == made.steps() >= 1
    ledger_is_sound(made)
