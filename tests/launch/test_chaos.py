"""Faults on real Ray: what dies comes back, what hangs is replaced, a full disk ends the run politely, a driver that is killed
goes on, whatever it was doing; and the accounts hold. Engines are simulated: the machine around them is what is tested."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from faults import Fault, Faults, deaths
from moments import MOMENTS
from trainruns import Cluster, Left, Run, ledger_is_sound, run

from launch import doctor

sys.path.append(str(Path(__file__).parents[1] / "bench"))
from soak import BUSY, WATCHED, Soak, grows, soak, told

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1200)]

PATIENT = 10
"""Seconds that a call may take."""
KILLED = ["learner-proposer-0", "ledger-0", "proposer-0"]
FAULTS = [
    *[Fault(1 + i, "kill", who) for i, who in enumerate(KILLED)],
    Fault(2, "stall", "solver-1", 600.0),  # after the learner's death, which takes all that is under way back
    Fault(4, "full", "learner-solver-0"),
]


def test_what_dies_in_a_run_comes_back(ray_cluster, tmp_path):
    """A learner, the ledger and a player, one after the other."""
    made = Soak(tmp_path, ray_cluster, seed=0, rate=1.5)
    with run(made.made.folder, *made.settings, env=ray_cluster.env, config="simulated") as first:
        faults = made.faults(first, FAULTS[: len(KILLED)])
        first.until("all have died", lambda: len(faults.made) == len(KILLED))
        seen = first.steps()
        first.until("the run goes on", lambda: first.steps() > seen)
        made.note(faults)
        first.stops()
    _deaths_are_told(first, faults)
    made.audit()
    ledger_is_sound(made.made)
    _voids_come_of_the_faults_alone(made.made)


@pytest.mark.nightly
def test_two_minutes_of_faults_break_no_law(ray_cluster, tmp_path, capsys):
    """A declared schedule that ends with a full disk. Then the same run folder under random faults, while its driver is killed
    between an optimizer step and its commit, that and the save, in the save, and between a renaming and state.json."""
    made = Soak(tmp_path, ray_cluster, seed=0, rate=1.5, settings=[f"placement.call_timeout={PATIENT}"])
    with run(made.made.folder, *made.settings, env=ray_cluster.env, config="simulated") as first:
        faults = made.faults(first, FAULTS)
        assert first.wait(BUSY) == 2, first.text()
        made.note(faults)
        assert "needs space" in first.text() and "resume=auto" in first.text() and "Traceback" not in first.text()
    assert 3 <= made.made.saved()
    hung = _deaths_are_told(first, faults, ["solver-1"])["solver-1"]
    assert f"took longer than {PATIENT} s" in hung["last_call"]
    for moment in MOMENTS:
        made.life(moment, 2.0)
    made.life("", 10.0)
    told(made, 2)
    assert made.killed == dict.fromkeys(MOMENTS, 1) and made.kills() >= 10
    assert doctor.main(["--ledger", str(made.made.folder / "ledger.db")]) == 0, capsys.readouterr().out
    ledger_is_sound(made.made)
    _voids_come_of_the_faults_alone(made.made)
    assert "solver_deadline" in made.made.counts()


def _deaths_are_told(made: Run, faults: Faults, stalled: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Each death once, by name, with its cause; by actor."""
    lines = [line for line in deaths(made.folder) if line["pid"] in faults.made]
    done = {line["actor"]: faults.made[line["pid"]].do for line in lines}
    assert done == {**dict.fromkeys(KILLED, "kill"), **dict.fromkeys(stalled, "stall")} and len(lines) == len(done)
    text = made.text()
    assert all(f"{who}: process" in text for who in KILLED)
    assert "learner-proposer is back" in text
    return {line["actor"]: line for line in lines}


def _voids_come_of_the_faults_alone(made: Left) -> None:
    causes = {cause for (cause,) in made.sql("SELECT DISTINCT cause FROM episodes WHERE outcome = 'void'")}
    assert "interrupted" in causes
    assert all(cause.endswith(("_died", "_deadline")) or cause in EFFECTS for cause in causes), causes


EFFECTS = {"interrupted", "too_few_attempts", "retriever_down", "payload_lost", "aborted"}
"""What deaths may bring about elsewhere."""


@pytest.fixture
def unhurried() -> Iterator[Cluster]:
    """A cluster of its own, whose memory is looked at."""
    folder = Path(f"/tmp/ssp-soak-{os.getpid()}")  # short: Ray puts socket files below it
    cluster = Cluster(folder)
    yield cluster
    cluster.end()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_ten_thousand_games_and_two_hundred_real_kills(unhurried, tmp_path):
    """Thirty minutes of them; memory is flat."""
    made = soak(tmp_path, unhurried, 30)
    told(made, 30)
    assert made.games() >= 10_000 and made.kills() >= 200 and all(made.killed[moment] for moment in MOMENTS)
    assert not grows(made), WATCHED
