"""One of each kind of actor dies in the middle of a run, and one hangs: each comes back, and no reward comes of it."""

from __future__ import annotations

import os
import signal

import pytest
from trainruns import LONG, PAIRS, ledger_is_sound, run

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

KILLED = [
    ("proposer-0", "shard-0-0"),
    ("solver-0", "queue-questions-0"),
    ("judge-0", "queue-solver-0"),
    ("ledger-0", "queue-proposer-0"),
    ("learner-proposer-0", "shard-1-0"),
]
"""What dies at the same moment."""


def test_every_kind_of_actor_may_die_and_a_hung_one_is_replaced(ray_cluster, tmp_path):
    settings = [*PAIRS, LONG, "save.every=2", "void.probe_every=0.1", "placement.call_timeout=10"]
    with run(tmp_path / "faults", *settings, env=ray_cluster.env) as made:
        made.until("the first step", lambda: made.steps() >= 1)
        first = ray_cluster.actors("faults")
        for names in KILLED:
            before = made.steps()
            for name in names:
                os.kill(first[name], signal.SIGKILL)
            made.until(f"{names} are back", lambda names=names: _are_new(names, first, ray_cluster.actors("faults")))
            made.until(f"a step after {names}", lambda before=before: made.steps() > before)
        os.kill(first["solver-1"], signal.SIGSTOP)
        made.until("the hung solver is replaced", lambda: "solver-1 is back" in made.text())
        made.stops()
    ledger_is_sound(made)
    games = made.rows("game")
    assert all(row["search/coverage"] == 1.0 for row in games if "search/coverage" in row)
    assert any(row.get("time/search_search", 0) > 0 for row in games)
    text, counts = made.text(), made.counts()
    assert counts["proposer_died"] > 0 and counts["solver_died"] > 0 and counts["solver_deadline"] > 0
    # The learner learned its batches again, and nobody else's work was taken back.
    assert "learner-proposer-0 died" in text and "it alone goes back to its last checkpoint" in text
    assert "back to the last checkpoint" not in text and not counts.get("rolled_back")
    for role in ("proposer", "solver"):
        # A round whose groups have no spread trains nothing, and publishes nothing.
        versions = [row["version"] for row in made.rows(role) if row["episodes"]]
        assert versions == list(range(2, 2 + len(versions)))
    blamed = made.sql("SELECT DISTINCT outcome, state FROM episodes WHERE cause LIKE '%died' OR cause LIKE '%deadline'")
    assert blamed == [("void", "voided")]


def _are_new(names: tuple[str, ...], first: dict[str, int], now: dict[str, int]) -> bool:
    return all(now.get(name, first[name]) != first[name] for name in names)
