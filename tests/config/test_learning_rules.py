"""Learning settings that would train wrongly are refused; those that another one makes idle pass."""

from __future__ import annotations

import pytest

from ssp.base.errors import InputError
from ssp.selfplay.settings import load

KL = "solver.kl.coef=0.1"


@pytest.mark.parametrize(
    ("typed", "rule"),
    [
        ([KL, "solver.kl.kind=k1"], "solver.kl.kind=k1 has no gradient in expectation"),
        (["solver.clip_dual=0.5"], "solver.clip_dual is 0 (none) or above 1"),
        (["solver.clip_dual=1"], "solver.clip_dual is 0 (none) or above 1"),
    ],
)
def test_what_would_train_wrongly_is_refused(typed: list[str], rule: str) -> None:
    with pytest.raises(InputError) as caught:
        load("quickstart", typed)
    assert caught.value.rule.startswith(rule)


@pytest.mark.parametrize(
    "typed",
    [
        ["solver.lam=0.9", "solver.critic.lr=1e-4", "solver.algorithm=reinforce_running"],
        ["solver.loss=tis", "solver.clip_high=0.3"],
        [KL, "solver.kl.topk=8", "solver.kl.ema_tau=0.5"],
        ["proposer.policy=frozen", "proposer.clip_dual=0.5"],  # nobody learns with it
    ],
)
def test_what_another_setting_makes_idle_passes(typed: list[str]) -> None:
    load("quickstart", typed)
