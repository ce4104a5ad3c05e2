"""The doctor: what it finds on this machine, and what it says of good and broken accounts."""

from __future__ import annotations

import re
import socket
import sqlite3

import pytest

from launch import doctor
from ssp.config.schema import Config
from ssp.errors import InputError
from ssp.ledger import Ledger


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
    with pytest.raises(InputError, match="--ledger FILE"):
        doctor.main(["--digest"])
    with pytest.raises(InputError, match="must exist"):
        doctor.main(["--ledger", str(ledger_file) + "x"])


def find(checks, what):
    return next(check for check in checks if check.what.startswith(what))


def test_the_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("SSP_HOME", str(tmp_path))
    checks = list(doctor.examine(Config()))
    assert find(checks, "python").status == find(checks, "ray cluster").status == "ok"
    assert {"torch", "cores", "memory", "disk at"} <= {re.sub("at .*", "at", check.what) for check in checks}


def test_a_busy_dashboard_port_and_a_full_disk(monkeypatch, tmp_path):
    monkeypatch.setenv("SSP_HOME", str(tmp_path))
    monkeypatch.setattr(doctor, "START_BYTES", 10**18)
    cfg = Config()
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        cfg.ray.dashboard_port = busy.getsockname()[1]
        checks = list(doctor.examine(cfg))
        assert find(checks, "dashboard").status == "warn"
    assert find(checks, "disk").status == "fail"


def test_a_missing_package_fails(monkeypatch):
    monkeypatch.setattr(doctor, "NEEDED", ("torch", "no-such-package"))
    checks = {check.what: check for check in doctor._packages()}
    assert (checks["torch"].status, checks["no-such-package"].status) == ("ok", "fail")


def test_running_stale_and_named_clusters(tmp_path):
    file = tmp_path / "ray_current_cluster"
    assert "none is running" in doctor._ray("", file).found
    with socket.socket() as cluster:
        cluster.bind(("127.0.0.1", 0))
        cluster.listen()
        address = f"127.0.0.1:{cluster.getsockname()[1]}"
        file.write_text(address)
        assert doctor._ray("", file).status == "warn"
        assert doctor._ray(address, file).status == "ok"
    assert doctor._ray("", file).status == "ok" and "does not answer" in doctor._ray("", file).found
    assert doctor._ray(address, file).status == "fail"
    assert doctor._ray("auto", file).status == "ok"
