"""Whom the schedule of faults strikes, over made-up actors that are real processes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import psutil
import pytest
from faults import Fault, Faults, names
from trainruns import until

from ssp.selfplay.settings import load


@pytest.fixture
def pids() -> Iterator[list[int]]:
    """Two processes that wait."""
    made = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    yield [process.pid for process in made]
    for process in made:
        process.kill()
        process.wait()


def status(pid: int) -> str:
    return psutil.Process(pid).status()


def test_a_second_kill_waits_for_the_process_after_the_first(pids: list[int]) -> None:
    there = {"ledger-0": pids[0]}
    steps = [0]
    made = Faults([Fault(2, "kill", "ledger-0"), Fault(1, "kill", "ledger-0")], lambda: len(steps), lambda: there, fail)
    until("the first one", lambda: status(pids[0]) == psutil.STATUS_ZOMBIE or steps.append(0))
    there["ledger-0"] = pids[1]
    until("the second one", lambda: status(pids[1]) == psutil.STATUS_ZOMBIE or steps.append(0))
    made.end()
    assert {pid: fault.at_step for pid, fault in made.made.items()} == {pids[0]: 1, pids[1]: 2}


@pytest.mark.parametrize("seconds", [0.05, 600.0])
def test_what_is_stopped_goes_on(pids: list[int], seconds: float) -> None:
    made = Faults([Fault(0, "stall", "judge-0", seconds)], lambda: 0, lambda: {"judge-0": pids[0]}, fail)
    until("it is struck", lambda: made.made)
    if seconds >= 1:  # the signal is on its way when it has been sent
        until("it is stopped", lambda: status(pids[0]) == psutil.STATUS_STOPPED)
    made.end()
    assert status(pids[0]) != psutil.STATUS_STOPPED


def test_names_are_those_of_the_run() -> None:
    found = names(load("quickstart", ["placement.solvers=3", "retriever.replicas=2"]))
    assert {"solver-2", "shard-1-1", "learner-proposer-0", "queue-solver-0", "ledger-0"} <= set(found)
    assert "learner-proposer-0" not in names(load("quickstart", ["defaults.policy=shared"]))


def fail(who: str) -> None:
    raise AssertionError(who)
