"""Advantages: textbook numbers, voids that stay out, groups without spread, errors by name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from ssp.base.errors import InvariantError
from ssp.learning import algorithms, kl, losses
from ssp.learning.algorithms.tokens import token_rewards
from tests.choices import choices

NAN = float("nan")
EXTRA = {"gae": {"values": torch.zeros(99, 4)}, "remax": {"baseline_rewards": torch.zeros(99)}}


def fake_batch(rewards, valid=None, mask=None):
    n = len(rewards)
    return SimpleNamespace(
        rewards=torch.tensor(rewards),
        groups=torch.zeros(n, dtype=torch.long),
        valid=torch.tensor(valid or [True] * n),
        mask=torch.tensor([[False, True, False, True]] * n) if mask is None else mask,
        values=None,
        token_rewards=None,
        baseline_rewards=None,
    )


def estimate(name, batch):
    for field, value in EXTRA.get(name, {}).items():
        setattr(batch, field, value[: len(batch.rewards)])
    return algorithms.get(name).advantages(batch)


def test_every_name_of_the_contract_is_there():
    known = "dr_grpo gae grpo grpo_turns hrpo rae reinforce reinforce_none reinforce_pp reinforce_pp_baseline reinforce_running remax rloo"
    assert {*known.split()} <= {*algorithms.names()}
    assert all(algorithms.get(name).name == name for name in algorithms.names())


def test_a_configuration_takes_the_names_that_there_are():
    assert set(choices("solver.kl.kind")) == set(kl.names())
    assert set(choices("solver.loss")) == set(losses.names())
    assert set(choices("solver.algorithm")) == set(algorithms.names())


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "reinforce", "reinforce_pp", "reinforce_pp_baseline"])
@pytest.mark.parametrize("value", [0.0, 1.0, 0.3, 1 / 3])
def test_equal_rewards_are_exactly_zero(name, value):
    assert torch.equal(estimate(name, fake_batch([value] * 5)), torch.zeros(5, 4))


@pytest.mark.parametrize("name", algorithms.names())
def test_a_valid_row_without_a_finite_reward_is_a_bug(name):
    with pytest.raises(InvariantError, match="not finite"):
        estimate(name, fake_batch([1.0, NAN]))


@pytest.mark.parametrize(("name", "field"), [("gae", "values"), ("remax", "baseline_rewards")])
def test_a_field_that_is_missing_is_named(name, field):
    with pytest.raises(InvariantError, match=f"{name} needs a batch with {field}"):
        algorithms.get(name).advantages(fake_batch([1.0]))


@pytest.mark.covers("SR-33")
def test_the_reward_lies_on_the_last_model_token_alone():
    mask = torch.tensor(
        [
            [False, True, False, True, False, False],  # an observation or a template tail behind it
            [False, True, True, True, True, True],
            [False, True, False, False, False, False],
            [False] * 6,  # wrote nothing
            [False, True, True, False, False, False],  # void
        ]
    )
    got = token_rewards(fake_batch([0.5, 0.25, 1.0, 1.0, NAN], valid=[True] * 4 + [False], mask=mask))
    assert torch.nonzero(got).tolist() == [[0, 3], [1, 5], [2, 1]]
    assert got.sum(dim=1).tolist() == [0.5, 0.25, 1.0, 0.0, 0.0]


def test_state_survives_and_foreign_state_is_refused():
    running = algorithms.get("reinforce_running")
    for algorithm in map(algorithms.get, algorithms.names()):
        state = algorithm.state_dict()
        algorithm.load_state_dict(state)
        for foreign in ({"mean": 1.0}, {"total": 1.0}, {"total": 1.0, "weight": "2"}, {"baseline": 1}):
            with pytest.raises(InvariantError, match=f"{algorithm.name} keeps"):
                algorithm.load_state_dict(foreign)
        assert algorithm.state_dict() == state
    for one, other in ((running, {}), (algorithms.get("reinforce"), running.state_dict())):
        with pytest.raises(InvariantError, match=f"{one.name} keeps"):
            one.load_state_dict(other)


def test_every_loss_but_the_plain_one_uses_the_behaviour_log_probs():
    assert [name for name in losses.names() if not losses.trusted(name)] == ["pg"]
