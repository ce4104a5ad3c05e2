"""One of each kind of actor dies in the middle of a run, and one hangs: each comes back, and no reward comes of it."""

from __future__ import annotations

import os
import re
import signal

import pytest
from trainruns import ledger_is_sound, run

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

KILLED = [
    "proposer-0",
    "solver-0",
    "shard-0-0",
    "judge-0",
    "queue-questions-0",
    "queue-solver-0",
    "ledger-0",
    "learner-proposer-0",
]


def test_every_kind_of_actor_may_die_and_a_hung_one_is_replaced(ray_cluster, tmp_path):
    settings = ["steps=40", "save.every=2", "void.probe_every=0.1", "placement.call_timeout=10"]
    with run(tmp_path / "faults", *settings, env=ray_cluster.env) as made:
        made.until("the first step", lambda: made.steps() >= 1)
        first = ray_cluster.actors("faults")
        for name in KILLED:
            before = made.steps()
            os.kill(first[name], signal.SIGKILL)
            made.until(
                f"{name} is back", lambda name=name: ray_cluster.actors("faults").get(name, first[name]) != first[name]
            )
            made.until(f"a step after {name}", lambda before=before: made.steps() > before)
        os.kill(first["solver-1"], signal.SIGSTOP)
        made.until("the hung solver is replaced", lambda: re.search("solver-1 is back", made.text()))
        made.ends_well()
    assert made.steps() == 40
    ledger_is_sound(made)
    games = made.rows("game")
    assert all(row["search/coverage"] == 1.0 for row in games if "search/coverage" in row)
    assert any(row.get("time/search_search", 0) > 0 for row in games)
    text, counts = made.text(), made.counts()
    assert counts["proposer_died"] > 0 and counts["solver_died"] > 0 and counts["solver_deadline"] > 0
    assert "learner-proposer-0 died" in text and "back to the last checkpoint" in text
    assert counts["rolled_back"] + counts.get("interrupted", 0) > 0
    blamed = made.sql("SELECT DISTINCT outcome, state FROM episodes WHERE cause LIKE '%died' OR cause LIKE '%deadline'")
    assert blamed == [("void", "voided")]
