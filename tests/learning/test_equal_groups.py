"""A group whose episodes earned the same is dropped only where nothing of the loss could act on it.

Each row says what is settled, and whether the learner's gradient on such a group is zero: the two must agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from solo import SoloLearner, gradients

from ssp.base.episode import PROPOSER, SOLVER, Grade
from ssp.config.role import RoleConfig
from ssp.learning.batch import collate
from ssp.selfplay.settle import settle
from ssp.selfplay.settled import Settled
from tests.selfplay.fakes import brief, config, game

T, F = True, False
NAN = float("nan")

TERMS = [
    ({}, False),
    ({"kl__coef": 0.1}, True),
    ({"kl__coef": 0.1, "kl__place": "reward"}, True),
    ({"kl__coef": 0.1, "kl__place": "advantage"}, True),
    ({"kl__coef": 0.1, "kl__place": "future"}, True),
    ({"entropy_coef": 0.01}, True),
    ({"llds_coef": 1.0}, True),
]
"""Terms beside the policy loss, and whether they act where every reward of a group is the same."""


def of(role: str, terms: dict[str, Any]) -> dict[str, Any]:
    return {f"{role}__{name}": value for name, value in terms.items()}


def ends(settled: Settled, role: str) -> set[str]:
    """State and cause of the rows of a role's scored episodes."""
    first = {PROPOSER: "p", SOLVER: "s"}[role]
    rows = [row for row in settled.rows if row["id"].startswith(first) and row["reward"] is not None]
    return {f"{row['state']} {row['cause']}".strip() for row in rows}


def learner(model_dir: Any, make_batch: Any, role: RoleConfig, terms: dict[str, Any]) -> SoloLearner:
    """One whose policy has left its reference."""
    for name, value in terms.items():
        block, _, last = name.rpartition("__")
        setattr(getattr(role, block) if block else role, last, value)
    role.learner.lr = 1e-2
    made = SoloLearner(model_dir, role)
    mixed = make_batch(16, seed=3)
    made.update(replace(mixed, baseline_rewards=torch.zeros(16)))
    return made


def acts_on(learner: SoloLearner, batch: Any) -> bool:
    found, _ = gradients(learner, batch)
    return any(bool((gradient != 0).any()) for gradient in found.values())


@pytest.mark.parametrize("algorithm", ["grpo", "dr_grpo", "rloo", "grpo_turns"])
@pytest.mark.parametrize(("terms", "acts"), TERMS)
def test_equal_attempts_are_trained_where_a_term_acts(model_dir, make_batch, role, algorithm, terms, acts):
    for refill in (1, 2):
        cfg = config(solver__algorithm=algorithm, game__refill=refill, **of(SOLVER, terms))
        for right in ([T] * 4, [F] * 4):
            settled = settle(cfg, [game("g1", right)], 7)
            assert ends(settled, SOLVER) == {"queued" if acts else "dropped no_signal"}
            assert len(settled.samples[SOLVER]) == 4 * acts
            assert settled.counts["groups"] == 0 and settled.counts["left/no_signal"] == (not acts)
    role.algorithm = algorithm
    made = learner(model_dir, make_batch, role, terms)
    flat = replace(make_batch(8, noise=0.3), rewards=torch.ones(8))
    assert acts_on(made, flat) is acts


@pytest.mark.parametrize("algorithm", ["grpo", "rloo"])
@pytest.mark.parametrize(("terms", "acts"), TERMS)
def test_equal_proposals_too(algorithm, terms, acts):
    cfg = config(game__proposals=2, proposer__algorithm=algorithm, **of(PROPOSER, terms))
    pair = [game("g0", [T, F, T, F]), game("g1", [F, T, F, T])]
    settled = settle(cfg, pair, 7)
    assert ends(settled, PROPOSER) == {"queued" if acts else "dropped no_signal"}
    assert len(settled.samples[PROPOSER]) == 2 * acts and len(settled.samples[SOLVER]) == 8


@pytest.mark.parametrize("role_name", [SOLVER, PROPOSER])
def test_one_roles_terms_do_not_act_for_the_other(role_name):
    other = PROPOSER if role_name == SOLVER else SOLVER
    cfg = config(game__proposals=2, proposer__algorithm="rloo", **of(other, {"kl__coef": 0.1, "entropy_coef": 0.1}))
    settled = settle(cfg, [game("g0", [T] * 4), game("g1", [T] * 4)], 7)
    assert ends(settled, role_name) == {"dropped no_signal"} and ends(settled, other) == {"queued"}


REMAX = [
    # turns of each attempt, what the greedy answer earned, terms, whether something acts
    ([(), ()], 1.0, {}, False),
    ([(0.0, 1.0), (0.0, 1.0)], 1.0, {}, False),
    ([(0.5, 0.5), (0.5, 0.5)], 1.0, {}, True),
    ([(1.0, 0.0), (0.0, 1.0)], 1.0, {}, True),
    ([(-1.0, 2.0), (0.0, 1.0)], 1.0, {}, True),
    ([(), ()], 0.0, {}, True),
    ([(), ()], 1.0, {"kl__coef": 0.1, "kl__place": "reward"}, True),
    ([(), ()], 1.0, {"entropy_coef": 0.1}, True),
    ([(), ()], NAN, {}, False),
    ([(0.5, 0.5), (0.5, 0.5)], NAN, {}, False),
    ([(), ()], NAN, {"kl__coef": 0.1, "kl__place": "reward"}, False),
    ([(), ()], NAN, {"kl__coef": 0.1, "kl__place": "advantage"}, True),
    ([(), ()], NAN, {"kl__coef": 0.1}, True),
    ([(), ()], NAN, {"llds_coef": 1.0}, True),
]


@pytest.mark.parametrize(("turns", "greedy", "terms", "acts"), REMAX)
def test_remax_drops_a_group_only_where_every_turn_earned_what_the_greedy_answer_did(
    model_dir, make_batch, make_episodes, role, turns, greedy, terms, acts
):
    made = game("g1", [T, T])
    for attempt, told in zip(made.attempts, turns, strict=True):
        made.grades[attempt.id] = Grade(True, 1.0, turns=told)
    made.greedy = brief("sg1g")
    made.grades["sg1g"] = Grade(greedy == 1.0, greedy) if greedy == greedy else Grade(None, void_cause="judge_down")
    settled = settle(config(solver__algorithm="remax", game__attempts=2, **of(SOLVER, terms)), [made], 7)
    rows = {row["id"]: f"{row['state']} {row['cause']}".strip() for row in settled.rows}
    assert {rows["sg1a0"], rows["sg1a1"]} == {"queued" if acts else "dropped no_signal"}
    assert rows["sg1g"] == ("kept" if greedy == greedy else "voided judge_down")

    role.algorithm = "remax"
    mine = learner(model_dir, make_batch, role, terms)
    samples = settled.samples[SOLVER]
    given = [sample.turns for sample in samples] if acts else turns
    baselines = [sample.baseline for sample in samples] if acts else [greedy] * 2
    batch = collate(make_episodes(2), [1.0, 1.0], [0, 0], baselines, given if any(given) else None)
    logprobs = torch.where(batch.mask, make_batch(2, noise=0.3).logprobs + 1.0, 0.0)  # it became less likely
    assert acts_on(mine, replace(batch, logprobs=logprobs)) is acts
