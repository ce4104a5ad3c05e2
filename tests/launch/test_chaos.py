"""A declared schedule of faults on real Ray: what dies comes back, what hangs is replaced, a full disk ends the run politely,
and the accounts hold. Engines are simulated: the machine around them is what is tested."""

from __future__ import annotations

import json
from typing import Any

import pytest
from trainruns import Left, Run, run

from actors.watch import deaths
from launch import doctor

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1200)]

SMALL = [
    "placement.proposers=1",
    "placement.judges=1",
    "retriever.shards=1",
    "retriever.replicas=2",
    "placement.call_timeout=6",
    "void.limit=1",
    "save.every=2",
    "steps=14",
]
KILLED = [
    "learner-proposer-0",
    "proposer-0",
    "shard-0-0",
    "solver-0",
    "queue-questions-0",
    "queue-solver-0",
    "ledger-0",
    "judge-0",
]
FAULTS: list[dict[str, Any]] = [
    *[{"at_step": 1 + i // 2, "do": "kill", "who": who} for i, who in enumerate(KILLED)],
    {"at_step": 2, "do": "stall", "who": "shard-0-1", "seconds": 1},
    {"at_step": 3, "do": "stall", "who": "solver-1", "seconds": 600},
    {"at_step": 6, "do": "full", "who": "learner-solver-0"},
]


def test_a_schedule_of_faults_breaks_no_law(ray_cluster, tmp_path, capsys):
    schedule = f"chaos.faults={json.dumps(FAULTS)}"
    how = {"env": ray_cluster.env, "config": "simulated"}
    with run(tmp_path / "chaos", *SMALL, schedule, **how) as made:
        assert made.wait() == 2, made.text()
        assert "needs space" in made.text() and "resume=auto" in made.text() and "Traceback" not in made.text()
        assert 6 <= made.saved() < 14  # a learner may be steps ahead of the other
        _deaths_are_told(made)
    with run(tmp_path / "chaos", *SMALL, "resume=auto", **how) as again:
        again.ends_well()
    assert again.steps() == 14 and again.saved() == 14
    assert doctor.main(["--ledger", str(again.folder / "ledger.db")]) == 0, capsys.readouterr().out
    _laws_hold(again)


def _deaths_are_told(made: Run) -> None:
    """Each death once, by name, with its cause; what a test did is marked."""
    told = deaths.told(made.folder)
    assert {line["actor"] for line in told if line["chaos"] == "kill"} == set(KILLED)
    [hung] = [line for line in told if line["chaos"] == "stall"]
    assert hung["actor"] == "solver-1" and "took longer than 6 s" in hung["last_call"]
    assert all(line["rss_mb"] > 10 and line["oom"] == "no sign" and line["pid"] for line in told if line["chaos"])
    text = made.text()
    assert all(f"chaos: kill {who}" in text and f"{who}: process" in text for who in KILLED)
    assert "learner-proposer-0 is back" in text


def _laws_hold(made: Left) -> None:
    """No void has a value, every episode has its end, and voids came of the faults alone."""
    assert made.sql("SELECT count(*) FROM episodes WHERE outcome = 'void' AND reward IS NOT NULL") == [(0,)]
    left = made.sql("SELECT DISTINCT state FROM episodes WHERE state IN ('created', 'running', 'grading', 'queued')")
    assert left == []
    again = "SELECT role, step FROM commits WHERE NOT rolled_back GROUP BY role, step HAVING count(*) > 1"
    assert made.sql(again) == []
    causes = {cause for (cause,) in made.sql("SELECT DISTINCT cause FROM episodes WHERE outcome = 'void'")}
    assert {"solver_died", "solver_deadline"} <= causes
    assert all(cause.endswith(("_died", "_deadline")) or cause in EFFECTS for cause in causes), causes


EFFECTS = {"interrupted", "too_few_attempts", "retriever_down", "payload_lost", "aborted"}
"""What deaths may bring about elsewhere."""
