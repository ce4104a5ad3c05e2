"""Advantages: textbook numbers, voids that stay out, groups without spread, errors by name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from ssp import algorithms
from ssp.errors import InputError, InvariantError

NAN = float("nan")


def fake_batch(rewards, groups=None, valid=None, mask=None, **extra):
    n = len(rewards)
    return SimpleNamespace(
        rewards=torch.tensor(rewards),
        groups=torch.tensor(groups or [0] * n),
        valid=torch.tensor(valid or [True] * n),
        mask=torch.tensor([[False, True, False, True]] * n) if mask is None else mask,
        **extra,
    )


def test_grpo_is_the_group_z_score_on_model_tokens_only():
    got = algorithms.get("grpo").advantages(fake_batch([1.0, 0.0, 0.0, 5.0, 3.0], groups=[7, 7, 7, 2, 2]))
    third, std = 1 / 3, (1 / 3) ** 0.5  # rewards 1, 0, 0: mean 1/3, sample variance 1/3
    rows = torch.tensor([(1 - third) / std, -third / std, -third / std, 0.5**0.5, -(0.5**0.5)])
    assert got.shape == (5, 4) and got.dtype == torch.float32
    torch.testing.assert_close(got[:, 1], rows, atol=1e-5, rtol=0)
    assert torch.equal(got[:, 1], got[:, 3])
    assert torch.equal(got[:, [0, 2]], torch.zeros(5, 2))


@pytest.mark.parametrize("value", [0.0, 1.0, 0.3, 1 / 3])
def test_groups_without_spread_and_single_rows_are_exactly_zero(value):
    got = algorithms.get("grpo").advantages(fake_batch([value] * 5 + [0.9], groups=[0] * 5 + [1]))
    assert torch.equal(got, torch.zeros(6, 4))


@pytest.mark.parametrize("name", ["grpo", "reinforce"])
def test_voids_enter_nobodys_baseline_and_get_nothing(name):
    algorithm = algorithms.get(name)
    with_void = fake_batch([1.0, NAN, 0.0, 0.0], valid=[True, False, True, True])
    got = algorithm.advantages(with_void)
    assert torch.equal(got[1], torch.zeros(4))
    assert torch.equal(got[[0, 2, 3]], algorithm.advantages(fake_batch([1.0, 0.0, 0.0])))


def test_a_valid_row_without_a_finite_reward_is_a_bug():
    with pytest.raises(InvariantError, match="not finite"):
        algorithms.get("grpo").advantages(fake_batch([1.0, NAN]))


def test_reinforce_ignores_groups_and_whitens_the_batch():
    got = algorithms.get("reinforce").advantages(fake_batch([0.0, 0.5, 1.0, 0.5], groups=[0, 1, 2, 3]))[:, 1]
    assert abs(float(got.mean())) < 1e-6 and abs(float(got.std()) - 1) < 1e-4
    assert got[0] < got[1] == got[3] < got[2]


def test_reinforce_keeps_grading_versions_apart():
    rewards = [0.0, 1.0, 0.6, 0.8]
    got = algorithms.get("reinforce").advantages(fake_batch(rewards, graders=torch.tensor([4, 4, 5, 5])))[:, 1]
    torch.testing.assert_close(got, torch.tensor([-1.0, 1.0, -1.0, 1.0]) * 0.5**0.5, atol=1e-4, rtol=0)


def test_all_rows_void_gives_zeros():
    got = algorithms.get("reinforce").advantages(fake_batch([NAN, NAN], valid=[False, False]))
    assert torch.equal(got, torch.zeros(2, 4))


@pytest.mark.parametrize("name", algorithms.names())
def test_state_survives_and_foreign_state_is_refused(name):
    algorithm = algorithms.get(name)
    assert algorithm.name == name
    algorithm.load_state_dict(algorithm.state_dict())
    with pytest.raises(InvariantError, match="keeps no state"):
        algorithm.load_state_dict({"mean": 1.0})


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(InputError, match="grpo, reinforce"):
        algorithms.get("grop")
