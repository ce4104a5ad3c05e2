"""The doctor: what it finds on this machine, and what it says of good and broken accounts."""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import subprocess
import sys
from types import SimpleNamespace

import pytest

from launch import doctor
from launch.checks import clusters, machine, needs, places
from launch.nodes import raynode
from ssp.base.errors import InputError
from ssp.config.schema import Config
from ssp.record.ledger import Ledger, home


@pytest.fixture
def ledger_file(tmp_path):
    """A ledger with one trained, one dropped, one void episode; still open, as during a run."""
    book = Ledger(tmp_path / "ledger.db")
    book.create([{"id": n, "game_id": "g", "role": "solver"} for n in "abc"])
    book.advance([{"id": n, "state": "queued", "outcome": "scored", "reward": 1.0} for n in "ab"])
    book.advance(
        [{"id": "b", "state": "dropped", "cause": "stale"}, {"id": "c", "state": "voided", "cause": "judge_down"}]
    )
    book.commit("solver", 1, 1, 1, ["a"])
    yield tmp_path / "ledger.db"
    book.close()


def test_a_good_ledger(ledger_file, capsys):
    assert doctor.main(["--ledger", str(ledger_file)]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[-1] == "conservation: holds"
    rows = dict(re.findall(r"│ (\w[\w ]*?) +│ +(\d+) +│", text))
    assert (rows["running"], rows["trained"], rows["voided"], rows["sum"], rows["ever issued"]) == (
        "0",
        "1",
        "1",
        "3",
        "3",
    )
    assert re.search(r"drop/stale\D+1", text) and re.search(r"void/judge_down\D+1", text)


def test_a_broken_ledger(ledger_file, capsys):
    with sqlite3.connect(ledger_file) as db:
        db.execute("DELETE FROM episodes WHERE id = 'b'")
    assert doctor.main(["--ledger", str(ledger_file)]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("conservation: BROKEN: solver: created 3 != sum over")


def test_only_the_hash(ledger_file, capsys):
    assert doctor.main(["--ledger", str(ledger_file), "--digest"]) == 0
    assert re.fullmatch(r"[0-9a-f]{64}\n", capsys.readouterr().out)
    with pytest.raises(InputError, match="--ledger RUN"):
        doctor.main(["--digest"])
    with pytest.raises(InputError, match="existing folder"):
        doctor.main(["--ledger", str(ledger_file) + "x"])


def find(checks, what):
    return next(check for check in checks if check.what.startswith(what))


def test_the_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("SSP_HOME", str(tmp_path))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    checks = list(doctor.examine(Config()))
    assert find(checks, "python").status == "ok"
    named = {re.sub("at .*", "at", check.what) for check in checks}
    assert named >= {
        "torch", "cores", "GPUs", "memory", "/dev/shm", "disk at", "run folder and ledger", "dashboard port",
        "ports of ssp cluster", "ray cluster", "stale processes", "stale sessions",
    }  # fmt: skip
    assert all(check.next_step for check in checks if check.status != "ok")


@pytest.mark.covers("U4")
def test_the_table_and_the_memory_of_the_hosts(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("SSP_HOME", str(tmp_path))
    assert doctor.main(["--config", "quickstart", "ray.dashboard=false"]) == 0
    text = capsys.readouterr().out
    assert "Memory of the hosts, estimated" in text and re.search(r"learner-solver x1 +\d+", text)
    assert "dashboard port" not in text
    monkeypatch.setattr(machine, "NEEDED", ("no-such-package",))
    assert doctor.main(["--config", "quickstart"]) == 1


def test_a_busy_dashboard_port_and_a_full_disk(monkeypatch, tmp_path):
    monkeypatch.setenv("SSP_HOME", str(tmp_path))
    monkeypatch.setattr(places, "START_BYTES", 10**18)
    cfg = Config()
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        check = clusters.dashboard_port(port)
        assert check.status == "warn" and f"{port} is held by process {os.getpid()} (" in check.found
        check = clusters.cluster_ports({"MASTER_PORT": str(port - 1)})
        assert check.status == "warn" and f"{port} is held by process {os.getpid()}" in check.found
    assert find(places.run_folder(cfg), "disk").status == "fail"
    cfg.placement.nodes, cfg.placement.engine_gpus = "4x8x80", 1.0
    monkeypatch.setattr(machine.machine, "gpu_bytes", lambda: [])
    assert find(places.run_folder(cfg), "disk").status == "warn"
    monkeypatch.setattr(machine.machine, "gpu_bytes", lambda: [80 * 2**30])  # it may be the machine that is meant
    assert find(places.run_folder(cfg), "disk").status == "fail"


def test_what_a_run_reads_and_asks(monkeypatch, tmp_path):
    """Data, models and servers that are not there fail, but only warn where placement.nodes means another machine."""
    monkeypatch.setenv("SSP_HOME", str(tmp_path))
    monkeypatch.setattr(machine.machine, "gpu_bytes", lambda: [])
    cfg = Config()
    cfg.game.questions = "proposer"
    assert [check.status for check in needs.needs(cfg)] == ["ok", "ok"]
    (tmp_path / "corpus.jsonl").write_text("")
    cfg.data.corpus, cfg.data.targets = "corpus.jsonl", "data/no-targets.jsonl"
    cfg.solver.model = "nobody/no-such-model"
    cfg.judge.kind, cfg.judge.url, cfg.judge.key_env = "llm", "http://127.0.0.1:9/v1", ""
    cfg.retriever.url = "http://127.0.0.1:9/retrieve"
    monkeypatch.setattr(needs, "SECONDS", 0.2)
    checks = {check.what: check for check in needs.needs(cfg)}
    assert list(checks) == ["data", "models", "search server", "judge"]
    assert all(check.status == "fail" and check.next_step for check in checks.values())
    assert checks["data"].found == "data/no-targets.jsonl" and "no-such-model" in checks["models"].found
    cfg.placement.engine_gpus, cfg.placement.nodes = 1.0, "1x8x80"
    assert machine.gpus(cfg).status == "warn"
    assert {check.status for check in needs.needs(cfg)} == {"warn"}


def test_a_missing_or_wrong_package_fails(monkeypatch):
    monkeypatch.setattr(machine, "NEEDED", ("torch", "omegaconf", "no-such-package"))
    monkeypatch.setattr(machine.metadata, "requires", lambda name: ["torch==1.0", "omegaconf>=2.3,<3"])
    checks = {check.what: check for check in machine.packages()}
    assert [checks[name].status for name in machine.NEEDED] == ["fail", "ok", "fail"]
    assert "==1.0 wanted" in checks["torch"].found and checks["torch"].next_step == "run pip install 'torch==1.0'"


def test_gpus_that_the_config_asks_for(monkeypatch):
    cfg = Config()
    monkeypatch.setattr(machine.machine, "gpu_bytes", lambda: [])
    assert machine.gpus(cfg).status == "ok"
    cfg.placement.engine_gpus = 1.0
    assert machine.gpus(cfg).status == "fail"
    monkeypatch.setattr(machine.machine, "gpu_bytes", lambda: [80 * 2**30] * 2)
    assert (machine.gpus(cfg).status, machine.gpus(cfg).found) == ("ok", "2 with 80.0 GB")
    cfg.placement.engine_gpus = 0.0
    assert machine.gpus(cfg).status == "warn" and "unused" in machine.gpus(cfg).found


def test_shared_memory_against_what_the_config_publishes(monkeypatch):
    """Docker's 64 MB, a store of 256 MB, and the weights of both roles where they lie in shared files."""
    cfg = Config()
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda path: SimpleNamespace(free=64_000_000))
    check = machine.shared_memory(cfg)
    assert check.status == "warn" and "0.3 GB wanted" in check.found and "--shm-size" in check.next_step
    assert "weights" not in check.next_step
    cfg.transfer.kind = "shm"
    assert "weights on their way to players" in machine.shared_memory(cfg).next_step


def test_a_network_file_system_is_named(monkeypatch, tmp_path):
    mounts = tmp_path / "mounts"
    (tmp_path / "a b" / "runs").mkdir(parents=True)
    shared = str(tmp_path / "a b").replace(" ", "\\040")
    lines = ["1 0 8:1 / / rw - ext4 /dev/sda rw", f"2 1 0:1 / {shared} rw - nfs4 server:/x rw"]
    mounts.write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(home, "MOUNTS", mounts)
    assert home.file_system(tmp_path / "a b" / "runs") == "nfs4"
    assert home.file_system(tmp_path) == "ext4"
    cfg = Config()
    cfg.run.dir = str(tmp_path / "a b" / "runs")
    check = find(places.run_folder(cfg), "run folder and ledger")
    assert check.status == "warn" and "nfs4" in check.found and "docs/cluster.md" in check.next_step
    cfg.run.dir = str(tmp_path)
    assert find(places.run_folder(cfg), "run folder and ledger").status == "ok"


@pytest.mark.covers("U9")
def test_what_dead_runs_have_left(monkeypatch, tmp_path):
    """A process whose launcher is gone, and a large folder of a session that nobody is in. Nothing is touched."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(clusters, "HEAVY", 1000)
    mark = f"{2**22 + 1}-1"
    (tmp_path / "ray" / "session_1" / "logs").mkdir(parents=True)
    (tmp_path / "ray" / "session_1" / "logs" / "x").write_bytes(b"x" * 9000)
    (tmp_path / "ray" / "session_latest").symlink_to(tmp_path / "ray" / "session_1")
    sleep = [sys.executable, "-c", "import time; print(flush=True); time.sleep(99)"]
    with subprocess.Popen(sleep, env={raynode.MARK: mark}, stdout=subprocess.PIPE) as orphan:
        try:
            orphan.stdout.readline()  # Linux shows a process's environment only once its program has begun.
            processes, sessions = clusters.leftovers(tmp_path / "ray")
            assert processes.status == "warn" and str(orphan.pid) in processes.found
            assert orphan.poll() is None
        finally:
            orphan.kill()
    assert sessions.status == "warn" and sessions.found.startswith("1 session folder")
    assert str(tmp_path / "ray") in sessions.next_step


def test_running_stale_and_named_clusters(tmp_path):
    file = tmp_path / "ray_current_cluster"
    assert "none is running" in clusters.cluster("", file).found
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        file.write_text(address)
        assert clusters.cluster("", file).status == "warn"
        assert clusters.cluster(address, file).status == "ok"
    assert clusters.cluster("", file).status == "ok" and "does not answer" in clusters.cluster("", file).found
    assert clusters.cluster(address, file).status == "fail"
    assert clusters.cluster("auto", file).status == "ok"
