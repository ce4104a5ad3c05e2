"""What processes compute with and play at a time: threads for small and large models, episodes of an engine."""

from __future__ import annotations

import pytest

from ssp.capacity.memory import threads
from ssp.capacity.memory.processes import episodes, processes
from ssp.selfplay.settings import load

LARGE = "defaults.model=Qwen/Qwen2.5-0.5B"


def counts(*typed: str) -> dict[str, int]:
    return {process.name: process.threads for process in processes(load("quickstart", typed))}


def test_tiny_models_keep_to_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 64)
    assert set(counts().values()) == {1} and threads.alone(load("quickstart")) == 1


def test_larger_models_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 12)
    found = counts(LARGE, "placement.solvers=3", "placement.proposers=1")
    assert (found["solver"], found["proposer"], found["judge"]) == (4, 12, 6)
    assert (found["learner-solver"], found["learner-proposer"], found["ledger"]) == (6, 6, 1)
    assert threads.alone(load("quickstart", [LARGE])) == 12
    assert counts(LARGE, "placement.solvers=40", "placement.proposers=1")["solver"] == 1
    assert counts(LARGE, "solver.engine.kind=vllm")["solver"] == 1


def test_a_proposers_batch_counts_all_questions_of_its_targets() -> None:
    one, four = (load("quickstart", [f"game.proposals={count}"]) for count in (1, 4))
    assert episodes(one, "proposer") == episodes(four, "proposer") == 96 // one.placement.players["proposer"]


@pytest.mark.parametrize(("role", "each"), [("proposer", 32), ("solver", 96)])
def test_players_share_a_batch(role: str, each: int) -> None:
    """And a solver the 384 questions of an evaluation, of which it plays at most a training share at once."""
    assert episodes(load("quickstart", ["placement.proposers=3", "placement.solvers=3"]), role) == each
