"""Rules of weight transfer: what may be in flight, and which kinds go with what."""

from __future__ import annotations

import pytest

from ssp.base.errors import InputError
from ssp.selfplay.settings import load

LIVE = ["schedule.in_flight=true"]
SOLVER = ["game.questions=dataset", "data.questions=q.jsonl", "schedule.max_staleness.solver=1", *LIVE]
TURNS = [
    "placement.layout=colocate",
    "placement.engine_gpus=0.5",
    "placement.learner_gpus=0.5",
    "defaults.engine.kind=vllm",
]
BOTH = ["schedule.preset=one-step-off", "proposer.loss=tis", *LIVE]


@pytest.mark.parametrize(
    "given",
    [
        SOLVER,
        [*BOTH, "proposer.algorithm=grpo"],
        [*BOTH, "proposer.algorithm=rae"],
        [*BOTH, "proposer.algorithm=reinforce_running"],
        [*SOLVER[2:], "proposer.algorithm=grpo"],
        [*BOTH, "proposer.policy=frozen"],
        [*BOTH[1:], "schedule.max_staleness.proposer=1"],
        *[[f"transfer.kind={kind}"] for kind in ("auto", "object_store", "broadcast")],
        ["transfer.kind=object_store", "referee.verifier=solver"],
    ],
    ids=" ".join,
)
def test_allowed(given: list[str]) -> None:
    cfg = load("quickstart", given)
    flies = [
        role for role in ("proposer", "solver") if cfg.schedule.in_flight and getattr(cfg.schedule.max_staleness, role)
    ]
    assert flies == [role for role in ("proposer", "solver") if cfg.block(role).engine.continuous]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["schedule.in_flight=true"], "there is none"),
        (["schedule.max_staleness.proposer=1", "proposer.loss=tis", "proposer.policy=frozen", *LIVE], "there is none"),
        ([*BOTH, "proposer.algorithm=reinforce"], "share no baseline"),
        ([*BOTH, "proposer.algorithm=reinforce_pp"], "share no baseline"),
        ([*BOTH, "proposer.algorithm=gae"], "share no baseline"),
        ([*BOTH, "proposer.algorithm=grpo", "game.proposals=2"], "share no baseline"),
        (["transfer.kind=broadcast", "referee.verifier=solver"], "reaches players only"),
        (["transfer.kind=broadcast", *TURNS], "an engine sleeps meanwhile"),
        (["transfer.kind=carrier_pigeon"], "transfer.kind is one of"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_refused(given: list[str], said: str) -> None:
    with pytest.raises(InputError) as found:
        load("quickstart", given)
    assert said in str(found.value)
