"""Rules of a learner's program: what counts only with something else is refused."""

from __future__ import annotations

import pytest

from ssp.base.errors import InputError
from ssp.selfplay.settings import load

SHARED = "defaults.policy=shared"
TOGETHER = "defaults.learner.combine=true proposer.learner.lr=1e-3 solver.learner.lr=1e-3"


@pytest.mark.parametrize(
    ("typed", "rule"),
    [
        ("solver.learner.zero=3", "solver.learner.zero counts only with solver.learner.kind=deepspeed"),
        ("solver.learner.offload=optimizer", "offload counts only with"),
        ("solver.learner.kind=deepspeed solver.learner.offload=all", "which solver.learner.zero=3 makes"),
        ("solver.learner.lora.rank=4 solver.kl.coef=0.1 solver.kl.ema_tau=0.9", "does not move"),
        ("solver.policy=shared", "policy=shared is one policy for both roles"),
        ("solver.policy=shared proposer.policy=frozen", "policy=shared is one policy for both roles"),
        (f"{SHARED} game.questions=dataset data.questions=world:train", "where nobody proposes"),
        (f"{SHARED} solver.model=other", "policy=shared have one model"),
        (f"{SHARED} solver.learner.lora.rank=4", "policy=shared have one learner"),
        (f"{SHARED} proposer.learner.combine=true", "one learner"),
        (f"{SHARED} defaults.learner.combine=true", "with combine=true one learning rate"),
        (f"{SHARED} schedule.max_staleness.solver=1", "one staleness bound"),
        (f"{SHARED} proposer.algorithm=gae", "a critic of one role"),
        (f"{SHARED} solver.kl.coef=0.1 solver.kl.ema_tau=0.9", "does not move"),
        (f"{SHARED} solver.loss=pg", "takes the proposer's step first"),
        (f"{SHARED} solver.sampling.temperature=0", "above 0 for a role that learns"),
        (f"{SHARED} game.attempts=1", "compares attempts"),
        ("solver.learner.ranks=2", "has one rank"),
        ("defaults.learner.ranks=2 proposer.policy=frozen solver.learner.kind=deepspeed", "has one rank"),
    ],
)
def test_what_would_do_nothing_is_refused(typed: str, rule: str) -> None:
    with pytest.raises(InputError) as caught:
        load("quickstart", typed.split())
    assert rule in str(caught.value)


@pytest.mark.parametrize(
    "typed",
    [
        "defaults.learner.kind=deepspeed defaults.learner.zero=3 defaults.learner.offload=all",
        "defaults.learner.kind=deepspeed defaults.learner.ranks=2 defaults.engine.dtype=bfloat16",
        "defaults.learner.lora.rank=8",
        "solver.learner.checkpointing=true solver.kl.coef=0.1 solver.kl.ema_tau=0.9",
        SHARED,
        f"{SHARED} {TOGETHER} solver.loss=pg solver.learner.minibatch=0",
        f"{SHARED} schedule.preset=one-step-off proposer.loss=tis solver.kl.coef=0.1 proposer.learner.minibatch=4",
        f"{SHARED} defaults.learner.lora.rank=8 defaults.learner.kind=deepspeed defaults.learner.ranks=2",
    ],
)
def test_what_fits_is_let_through(typed: str) -> None:
    load("quickstart", typed.split())
