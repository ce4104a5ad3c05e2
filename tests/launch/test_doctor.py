"""The doctor: what it finds on this machine, and what it says of good and broken accounts."""

from __future__ import annotations

import re
import sqlite3
from types import SimpleNamespace

import pytest

from launch import doctor
from launch.shown import checks
from ssp.base.errors import InputError
from ssp.config.schema import Config
from ssp.record.ledger.book import Ledger


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
    rows = dict(re.findall(r"(?m)^ ([\w/ ]*?\w) +(\d+) *$", text))
    wanted = {
        "running": 0,
        "trained": 1,
        "voided": 1,
        "sum": 3,
        "ever issued": 3,
        "drop/stale": 1,
        "void/judge_down": 1,
    }
    assert {name: int(rows[name]) for name in wanted} == wanted


def test_a_broken_ledger(ledger_file, capsys):
    with sqlite3.connect(ledger_file) as db:
        db.execute("DELETE FROM episodes WHERE id = 'b'")
    assert doctor.main(["--ledger", str(ledger_file)]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("conservation: BROKEN: solver: created 3 != sum over")


def test_only_the_hash(ledger_file, capsys):
    assert doctor.main(["--ledger", str(ledger_file), "--digest"]) == 0
    assert re.fullmatch(r"[0-9a-f]{64}\n", capsys.readouterr().out)
    for wrong in (["--digest"], ["--ledger", str(ledger_file) + "x"]):
        with pytest.raises(InputError):
            doctor.main(wrong)


@pytest.mark.covers("U4")
def test_the_table_and_the_memory_of_the_hosts(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("SSP_HOME", str(tmp_path))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert all(check.next_step for check in checks.examine(Config()) if check.status != "ok")
    assert doctor.main(["--config", "quickstart"]) == 0
    text = capsys.readouterr().out
    assert "Memory of the hosts, estimated" in text and re.search(r"learner-solver x1 +\d+", text)
    rows = ("python", "packages", "GPUs", "memory", "/dev/shm", "disk at", "data", "models")
    assert all(f"\n {row}" in text for row in rows)
    monkeypatch.setattr(checks.metadata, "requires", lambda name: ["no-such-package"])
    assert doctor.main(["--config", "quickstart"]) == 1


def test_a_full_disk(monkeypatch, tmp_path):
    monkeypatch.setenv("SSP_HOME", str(tmp_path))
    monkeypatch.setattr(checks, "START_BYTES", 10**18)
    [disk] = [check for check in checks.run_folder(Config()) if check.what.startswith("disk")]
    assert disk.status == "fail"


def test_what_a_run_reads_and_asks(monkeypatch, tmp_path):
    monkeypatch.setenv("SSP_HOME", str(tmp_path))
    monkeypatch.setattr(checks.machine, "gpu_bytes", lambda: [])
    cfg = Config()
    assert [check.status for check in checks.needs(cfg)] == ["ok", "ok"]
    (tmp_path / "corpus.jsonl").write_text("")
    cfg.data.corpus, cfg.data.targets = "corpus.jsonl", "data/no-targets.jsonl"
    cfg.solver.model = "nobody/no-such-model"
    cfg.judge.kind, cfg.judge.url = "llm", "http://127.0.0.1:9/v1"
    cfg.retriever.url = "http://127.0.0.1:9/retrieve"
    monkeypatch.setattr(checks, "SECONDS", 0.2)
    found = {check.what: check for check in checks.needs(cfg)}
    assert list(found) == ["data", "models", "search server", "judge"]
    assert all(check.status == "fail" and check.next_step for check in found.values())
    assert found["data"].found == "data.targets=data/no-targets.jsonl" and "no-such-model" in found["models"].found


def test_a_missing_or_wrong_package_fails(monkeypatch):
    listed = ["torch==1.0", "omegaconf>=2.3,<3", "no-such-package", "vllm==9; extra == 'gpu'"]
    monkeypatch.setattr(checks.metadata, "requires", lambda name: listed)
    wrong = {check.what: check for check in checks.packages() if check.status == "fail"}
    assert list(wrong) == ["torch", "no-such-package"]
    assert wrong["torch"].next_step == "run pip install 'torch==1.0'"


def test_gpus_that_the_config_asks_for(monkeypatch):
    cfg = Config()
    for here, asked, status in (([], 0.0, "ok"), ([], 1.0, "fail"), ([2**36] * 2, 1.0, "ok"), ([2**36], 0.0, "warn")):
        monkeypatch.setattr(checks.machine, "gpu_bytes", lambda here=here: here)
        cfg.placement.engine_gpus = asked
        assert checks.gpus(cfg).status == status


def test_shared_memory_against_what_the_config_publishes(monkeypatch):
    """Docker's 64 MB, and a store for larger batches."""
    cfg = Config()
    cfg.solver.batch = 1000
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda path: SimpleNamespace(free=64_000_000))
    check = checks.shared_memory(cfg)
    assert check.status == "warn" and "0.5 GB wanted" in check.found and "--shm-size" in check.next_step
