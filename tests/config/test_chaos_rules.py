"""Faults on purpose name actors of the run; pools that cannot follow the cluster are refused."""

from __future__ import annotations

import pytest

from ssp.config import load
from ssp.config.chaos_rules import actors, bounds
from ssp.errors import InputError

ASYNC = ("schedule.preset=async", "transfer.kind=object_store", "solver.algorithm=grpo", "proposer.algorithm=grpo")
TRUST = ("defaults.loss=tis",)


def test_faults_are_read_from_the_command_line() -> None:
    cfg = load("quickstart", ["chaos.faults=[{at_step: 2, do: stall, who: shard-0-0, seconds: 3}, {who: ledger-0}]"])
    assert [(f.at_step, f.do, f.who, f.seconds) for f in cfg.chaos.faults] == [
        (2, "stall", "shard-0-0", 3.0),
        (1, "kill", "ledger-0", 5.0),
    ]


@pytest.mark.parametrize(
    "fault",
    [
        "do: burn, who: solver-0",
        "who: solver-9",
        "who: ''",
        "at_step: 0, who: solver-0",
        "do: full, who: solver-0",
        "do: node, who: solver-0",
        "do: stall, who: judge-0, seconds: 0",
    ],
)
def test_a_fault_that_cannot_happen_is_refused(fault: str) -> None:
    with pytest.raises(InputError, match=r"chaos.faults\[0\]"):
        load("quickstart", [f"chaos.faults=[{{{fault}}}]"])


def test_names_are_those_of_the_run() -> None:
    names = actors(load("quickstart", ["placement.solvers=3", "retriever.replicas=2"]))
    assert {"solver-2", "shard-1-1", "learner-proposer-0", "queue-questions-0", "ledger-0"} <= set(names)
    assert "learner-proposer-0" not in actors(load("quickstart", ["defaults.policy=shared"]))


def test_pools_have_bounds_around_their_size() -> None:
    assert bounds(load("quickstart", []), "solver") == (2, 2)
    cfg = load("quickstart", [*ASYNC, *TRUST, "placement.elastic.solvers=1-8"])
    assert bounds(cfg, "solver") == (1, 8) and bounds(cfg, "proposer") == (2, 2)
    cfg = load("quickstart", ["placement.elastic.replicas=1-3"])  # with bounds of 0 too: all give the same answers
    assert bounds(cfg, "replica") == (1, 3) and bounds(cfg, "solver") == (2, 2)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ((*ASYNC, *TRUST, "placement.elastic.solvers=3-8"), "LEAST-MOST with placement.solvers=2"),
        ((*ASYNC, *TRUST, "placement.elastic.solvers=many"), "LEAST-MOST"),
        ((*ASYNC, *TRUST, "placement.elastic.solvers=1-8", "transfer.kind=broadcast"), "weights that travel by"),
        (("transfer.kind=object_store", "placement.elastic.solvers=1-8"), "asynchronous runs"),
        (("placement.elastic.replicas=2-3",), "LEAST-MOST with retriever.replicas=1"),
        (("placement.elastic.replicas=1-3", "retriever.gpus=1"), "elastic.replicas is of shards on CPUs"),
    ],
)
def test_a_pool_that_cannot_change_is_refused(settings: tuple[str, ...], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        load("quickstart", [*settings])
