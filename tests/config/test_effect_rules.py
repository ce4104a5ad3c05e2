"""A learning setting that would do nothing is refused, with what would make it count."""

from __future__ import annotations

import pytest

from ssp.config.effect_rules import KL_NEEDS, NEEDS
from ssp.config.load import load
from ssp.config.rules import warnings
from ssp.config.tables import CHOICES
from ssp.errors import InputError

KL = "solver.kl.coef=0.1"


def refused(*typed: str) -> InputError:
    with pytest.raises(InputError) as caught:
        load("quickstart", list(typed))
    return caught.value


@pytest.mark.parametrize(
    ("typed", "rule"),
    [
        (["solver.gamma=0.9"], "solver.gamma counts only with solver.algorithm=reinforce_pp or"),
        (["solver.lam=0.9", "solver.algorithm=reinforce_pp"], "solver.lam counts only with solver.algorithm=gae"),
        (["solver.critic.lr=1e-4"], "solver.critic.lr counts only with solver.algorithm=gae"),
        (["solver.critic.warmup_steps=3"], "solver.critic.warmup_steps counts only with solver.algorithm=gae"),
        (["solver.loss=tis", "solver.clip_high=0.3"], "solver.clip_high counts only with solver.loss=ppo_clip or"),
        (["proposer.loss=pg", "proposer.clip_low=0.3"], "proposer.clip_low counts only with proposer.loss=ppo_clip or"),
        (["solver.loss=tis", "solver.clip_dual=3"], "solver.clip_dual counts only with solver.loss=ppo_clip or"),
        (["solver.tis_cap=3"], "solver.tis_cap counts only with solver.loss=tis or decoupled"),
        (["solver.correction.high=3"], "solver.correction.high counts only with solver.correction.mask=token or"),
        ([KL, "solver.kl.topk=8"], "solver.kl.topk counts only with solver.kl.kind=topk_reverse or topk_forward"),
        ([KL, "solver.kl.variant=paper"], "solver.kl.variant counts only with solver.kl.kind=topk_reverse or"),
        ([KL, "solver.kl.weight=true", "solver.kl.place=reward"], "solver.kl.weight counts only with solver.kl.place="),
        ([KL, "solver.kl.weight_high=2"], "solver.kl.weight_high counts only with solver.kl.weight=true"),
        ([KL, "solver.kl.horizon=5"], "solver.kl.horizon counts only with a kl.target above 0"),
        ([KL, "solver.kl.ema_every=5"], "solver.kl.ema_every counts only with kl.ema_tau below 1"),
        ([KL, "solver.kl.kind=full", "solver.kl.weight=true"], "solver.kl.weight corrects sampled tokens"),
        (["solver.baseline=running"], "solver.baseline counts only with solver.algorithm=reinforce"),
        (["solver.correction.mask=token", "solver.correction.low=1.5"], "solver.correction.low is at most 1"),
        (["solver.correction.mask=sequence", "solver.correction.high=0.9"], "solver.correction.low is at most 1"),
        ([KL, "solver.kl.kind=k1"], "solver.kl.kind=k1 has no gradient in expectation"),
        (["solver.clip_dual=0.5"], "solver.clip_dual is 0 (none) or above 1"),
        (["solver.clip_dual=1"], "solver.clip_dual is 0 (none) or above 1"),
        (["defaults.target_difficulty=0.3"], "proposer.target_difficulty counts only with proposer.reward="),
        (["health.rollbacks=5"], "health.rollbacks counts only with health.on_collapse=rollback"),
        (["health.on_collapse=rollback", "health.collapse=0"], "health.on_collapse=rollback answers a collapse"),
        ([KL, "solver.kl.ema_tau=0.9", "eval.anchor_every=2", "eval.every=0", "data.eval=[]"], "eval.anchor_every"),
    ],
)
def test_a_setting_without_effect_is_refused(typed: list[str], rule: str) -> None:
    assert refused(*typed).rule.startswith(rule)


def test_the_message_says_both_ways_out() -> None:
    found = refused("solver.gamma=0.9")
    assert found.found == "solver.gamma=0.9 with solver.algorithm=grpo"
    assert found.next_step == "leave solver.gamma at 1.0, or set solver.algorithm=reinforce_pp"


@pytest.mark.parametrize(
    "typed",
    [
        ["solver.gamma=0.9", "solver.algorithm=reinforce_pp_baseline"],
        ["solver.lam=0.9", "solver.gamma=0.9", "solver.algorithm=gae", "solver.critic.lr=1e-4"],
        ["solver.loss=tis", "solver.tis_cap=3"],
        ["solver.clip_high=0.3", "solver.clip_dual=3"],
        ["solver.algorithm=reinforce", "solver.baseline=running"],
        ["solver.correction.mask=token", "solver.correction.high=3"],
        [KL, "solver.kl.kind=topk_forward", "solver.kl.topk=8", "solver.kl.variant=paper", "solver.kl.weight=true"],
        [KL, "solver.kl.weight=true", "solver.kl.weight_low=0.5", "solver.kl.weight_high=2"],
        [KL, "solver.kl.target=0.1", "solver.kl.horizon=5", "solver.kl.ema_tau=0.9", "solver.kl.ema_every=5"],
        ["solver.kl.topk=8"],  # no KL at all: its settings wait for a coefficient
        ["proposer.policy=frozen", "proposer.gamma=0.9"],  # nobody learns with it
    ],
)
def test_what_has_an_effect_or_is_switched_off_as_a_whole_passes(typed: list[str]) -> None:
    load("quickstart", typed)


def test_the_table_speaks_of_names_that_there_are() -> None:
    for need in (*NEEDS, *KL_NEEDS):
        key = "{role}." + need.by
        assert key not in CHOICES or set(need.values) <= {*CHOICES[key]}


def test_a_bound_for_tokens_on_a_sequence_is_worth_a_word() -> None:
    wide = warnings(load("quickstart", ["solver.loss=gspo"]))
    assert any("the mean log-ratio of a long sequence never gets there" in line for line in wide)
    tight = ["solver.loss=gspo", "solver.clip_low=0.0003", "solver.clip_high=0.0004"]
    assert not any("gspo" in line for line in warnings(load("quickstart", tight)))
