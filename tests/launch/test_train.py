"""`ssp train` for real: as a job on a given cluster, in a cluster of its own, killed, resumed, ended by Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import inprocess
import pytest
from moments import MOMENTS, kill_at
from trainruns import (
    LONG,
    ONE_MODEL,
    PAIRS,
    PATIENCE,
    REPO,
    SMALL,
    Cluster,
    Left,
    ledger_is_sound,
    marked,
    run,
    until,
)

from launch import doctor
from ssp.base.episode import ROLES
from ssp.selfplay.settings import load

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

WHOLE = [*SMALL, *PAIRS, "steps=2", "eval.every=1", "save.every=1"]
LARGEST_UPLOAD = 20_000_000


@pytest.fixture(scope="module")
def whole(ray_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[Left, str]:
    """A finished run of two steps, and what it said: by `ray job submit` as the README shows it, from a copy of the
    repository. The run goes to SSP_HOME."""
    home = tmp_path_factory.mktemp("home")
    command = [sys.executable, "-m", "launch.train", "--config", "configs/quickstart.yaml", "run.name=job", *WHOLE]
    environment = json.dumps({"env_vars": {"SSP_HOME": str(home), "SSP_CACHE": os.environ["SSP_CACHE"]}})
    ray = [str(Path(sys.executable).parent / "ray"), "job", "submit", "--address", ray_cluster.dashboard]
    done = subprocess.run(
        [*ray, "--working-dir", ".", "--runtime-env-json", environment, "--", *command],
        cwd=REPO, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return Left(home / "runs" / "job"), done.stdout


def _listeners(mark: str) -> list[tuple[str, int]]:
    """(address, port) of every TCP socket that a process with `mark` listens on."""
    inodes = set()
    for pid in marked(mark):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(entry)
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, port = fields[1].split(":")
                found.append((address, int(port, 16)))
    return found


def _mapped(mark: str, title: str) -> list[str]:
    """The mapped files of each process with `mark` whose title begins so."""
    maps = []
    for pid in marked(mark):
        with suppress(OSError):  # it has ended
            if Path(f"/proc/{pid}/cmdline").read_text().startswith(title):
                maps.append(Path(f"/proc/{pid}/maps").read_text())
    return maps


def test_a_run_leaves_the_whole_run_folder(whole):
    made, said = whole
    files = "config.yaml metrics.jsonl ledger.db episodes tensorboard timeline.json checkpoints report.html"
    assert {path.name for path in made.folder.iterdir()} >= set(files.split())
    assert {row["step"] for row in made.rows("solver")} == {1, 2} == {row["step"] for row in made.rows("game")}
    assert [row["step"] for row in made.rows("eval")] == [0, 1, 2]
    assert list((made.folder / "tensorboard").rglob("events.out.tfevents.*"))
    assert json.loads((made.folder / "timeline.json").read_text())
    assert "what was learned" in said and str(made.folder) in said


def test_a_runs_checkpoints_load_with_transformers_and_its_ledger_is_sound(whole):
    from transformers import AutoModelForCausalLM

    made, _ = whole
    state = json.loads((made.folder / "checkpoints" / "state.json").read_text())
    assert state["step"] == 2 and set(state["folders"]) == set(ROLES)
    for role, place in state["folders"].items():
        assert place == f"checkpoints/{role}/v{state['versions'][role]}"
        assert (made.folder / place / "optimizer.pt").is_file()
        AutoModelForCausalLM.from_pretrained(made.folder / place)
        assert len(list((made.folder / "checkpoints" / role).iterdir())) == 2  # save.keep
    ledger_is_sound(made)


def test_a_job_plays_the_run_of_one_process_from_a_copy(whole, ray_cluster, tmp_path, capsys):
    """Each loss and each row of the ledger is the same. What git ignores does not travel."""
    made, _ = whole
    one = inprocess.play(load("quickstart", [*WHOLE, f"run.dir={tmp_path / 'one'}"]), "quickstart")
    for role in ROLES:
        ours, theirs = (
            [(row["loss"], row["grad_norm"]) for row in rows] for rows in (made.rows(role), one.figures(role))
        )
        assert ours == theirs and len(ours) == 2
    digests = []
    for folder in (made.folder, one.folder.path):
        assert doctor.main(["--ledger", str(folder / "ledger.db"), "--digest"]) == 0
        digests.append(capsys.readouterr().out.splitlines()[-1])
    assert digests[0] == digests[1]
    copies = list(ray_cluster.folder.glob("session_latest/runtime_resources/working_dir_files/_ray_pkg_*/"))
    carried = {path.name for copy in copies for path in copy.iterdir()}
    kept = {".venv", ".git", "runs", "data", ".hypothesis"}
    assert carried >= {"ssp", "actors", "launch", "configs"} and not carried & kept
    assert min(sum(p.stat().st_size for p in copy.rglob("*") if p.is_file()) for copy in copies) < LARGEST_UPLOAD


def test_a_killed_run_continues_trains_nothing_twice_and_ends_saved_by_ctrl_c(ray_cluster, tmp_path):
    """Killed in the middle of a save, its learner too, after a step that no save has. It goes on in a cluster of its own,
    every socket of which is on loopback, and ends with it. Only the solver has a model."""
    folder = tmp_path / "killed"
    with run(folder, *ONE_MODEL, LONG, "save.every=2", env=ray_cluster.env) as made:
        made.until("the first step", lambda: made.steps() >= 1)
        assert kill_at(made, MOMENTS["in a save"], PATIENCE), made.text()
    state = made.saved()
    [(lost,)] = made.sql(f"SELECT count(*) FROM episodes WHERE state = 'trained' AND commit_step > {state}")
    assert lost > 0

    # 0100007F is 127.0.0.1 in /proc; of IPv6 only ::1 and 127.0.0.1 mapped would do.
    loopback = {"0100007F", "0" * 24 + "01000000", "0000000000000000FFFF00000100007F"}
    with run(folder, *ONE_MODEL, LONG, "save.every=1", "resume=auto") as made:
        made.until("a step more than was lost", lambda: made.saved() >= state + 3)
        [mapped] = _mapped(made.mark, "ray::LearnerActor")
        assert "/torch/" in mapped and "/scipy/" not in mapped  # which the model library would take along
        listeners = _listeners(made.mark)
        assert listeners and {address for address, _ in listeners} <= loopback
        os.killpg(made.process.pid, signal.SIGINT)  # the terminal's Ctrl-C reaches every process of the group
        assert made.wait() == 130, made.text()
        until("no process of the run is left", lambda: not marked(made.mark), 60.0)
    assert made.counts()["rolled_back"] >= lost
    assert made.saved() == made.steps()
    ledger_is_sound(made)
    live = made.sql("SELECT role, step FROM commits WHERE NOT rolled_back ORDER BY role, step")
    assert live == [(role, step) for role in sorted(ROLES) for step in range(1, made.saved() + 1)]
