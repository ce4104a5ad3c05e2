"""Advantages: textbook numbers, voids that stay out, groups without spread, errors by name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from ssp.base.errors import InputError, InvariantError
from ssp.config.tables import SAID, choices
from ssp.game.rewards import proposer
from ssp.learning import algorithms, kl, losses
from ssp.learning.algorithms.base import episode_rewards, token_rewards
from ssp.learning.batch import collate

NAN = float("nan")
EXTRA = {"gae": {"values": torch.zeros(99, 4)}, "remax": {"baseline_rewards": torch.zeros(99)}}


def fake_batch(rewards, groups=None, valid=None, mask=None, **extra):
    n = len(rewards)
    return SimpleNamespace(
        rewards=torch.tensor(rewards),
        groups=torch.tensor(groups or [0] * n),
        valid=torch.tensor(valid or [True] * n),
        mask=torch.tensor([[False, True, False, True]] * n) if mask is None else mask,
        **{name: value[:n] for name, value in extra.items()},
    )


def estimate(name, batch, **options):
    for field, value in EXTRA.get(name, {}).items():
        if not hasattr(batch, field):
            setattr(batch, field, value[: len(batch.rewards)])
    return algorithms.get(name, **options).advantages(batch)


def test_every_name_of_the_contract_is_there():
    known = "dr_grpo gae grpo rae reinforce reinforce_pp reinforce_pp_baseline remax rloo"
    assert algorithms.names() == tuple(known.split())
    assert all(algorithms.get(name).name == name for name in algorithms.names())


def test_a_configuration_takes_the_names_that_there_are():
    known = choices()
    assert set(known["{role}.kl.kind"]) == set(kl.names())
    assert set(known["{role}.loss"]) == set(losses.names())
    assert set(known["{role}.algorithm"]) == {*algorithms.names(), "reinforce_running", "reinforce_none"}
    assert set(known["proposer.reward"]) == set(proposer.names())


@pytest.mark.covers("SR-02", "EP-07")
@pytest.mark.parametrize(("name", "size"), [("grpo", 0.8660254), ("dr_grpo", 0.5)])
def test_with_and_without_the_spread(name, size):
    got = estimate(name, fake_batch([1.0, 0.0, 0.0, 1.0]))[:, 1]
    torch.testing.assert_close(got, size * torch.tensor([1.0, -1, -1, 1]), atol=1e-5, rtol=0)


@pytest.mark.covers("SR-02")
def test_a_group_of_one_has_mean_0_and_deviation_1():
    batch = fake_batch([0.7, 1.0, NAN], groups=[0, 1, 1], valid=[True, True, False])
    got = estimate("grpo", batch)[:, 1]
    assert float(got[0]) == pytest.approx(0.7 / (1 + 1e-6))
    assert got[1] == got[2] == 0  # one of two is left: nothing to compare it with


@pytest.mark.covers("SR-02")
def test_two_data_sets_with_the_same_row_number_are_two_groups(make_finished):
    labels = [("nq", 3), ("nq", 3), ("hotpotqa", 3), ("hotpotqa", 3)]
    assert collate(make_finished(4), [1.0, 0.0, 1.0, 1.0], labels).groups.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "reinforce", "reinforce_pp", "reinforce_pp_baseline"])
@pytest.mark.parametrize("value", [0.0, 1.0, 0.3, 1 / 3])
def test_equal_rewards_are_exactly_zero(name, value):
    assert torch.equal(estimate(name, fake_batch([value] * 5)), torch.zeros(5, 4))


@pytest.mark.parametrize("name", algorithms.names())
def test_a_valid_row_without_a_finite_reward_is_a_bug(name):
    with pytest.raises(InvariantError, match="not finite"):
        estimate(name, fake_batch([1.0, NAN]))


@pytest.mark.covers("SR-03")
def test_reinforce_pp_returns_skip_observations_and_are_whitened_over_tokens():
    mask = torch.tensor([[False, True, False, True, True], [False, False, True, False, False]])
    got = estimate("reinforce_pp", fake_batch([1.0, 0.0], mask=mask), gamma=0.5)
    returns = torch.tensor([0.25, 0.5, 1.0, 0.0])  # the observation at 2 costs no time and hides nothing
    want = (returns - returns.mean()) / (returns.std() + 1e-6)
    torch.testing.assert_close(torch.cat([got[0, [1, 3, 4]], got[1, [2]]]), want)


@pytest.mark.covers("SR-01")
def test_gae_of_four_tokens_is_the_closed_form():
    """Model tokens at 1, 2, 4 and 5; the observation at 3 has a value and a reward that nobody may read."""
    values = torch.tensor([[NAN, 0.5, 0.4, NAN, 0.6, 0.2]])
    rewards = torch.tensor([[9.0, 0.1, 0.0, 9.0, 0.0, 1.0]])
    mask = torch.tensor([[False, True, True, False, True, True]])
    batch = fake_batch([1.0], mask=mask, values=values, token_rewards=rewards)
    d1, d2, d3, d4 = 0.1 + 0.9 * 0.4 - 0.5, 0.9 * 0.6 - 0.4, 0.9 * 0.2 - 0.6, 1.0 - 0.2
    c = 0.9 * 0.8
    want = [d1 + c * (d2 + c * (d3 + c * d4)), d2 + c * (d3 + c * d4), d3 + c * d4, d4]
    got = estimate("gae", batch, gamma=0.9, lam=0.8)
    assert got[0, [1, 2, 4, 5]].tolist() == pytest.approx(want, abs=1e-6)
    assert got[0, 0] == got[0, 3] == 0


def test_gae_without_discount_is_the_reward_less_the_value():
    values = torch.tensor([[0.0, 0.3, 5.0, 0.8]])
    got = estimate("gae", fake_batch([1.0], values=values))
    torch.testing.assert_close(got, torch.tensor([[0.0, 0.7, 0.0, 0.2]]))
    with pytest.raises(InvariantError, match="gae needs a batch with values"):
        algorithms.get("gae").advantages(fake_batch([1.0]))


def test_rae_compares_with_what_came_before():
    algorithm = algorithms.get("rae")
    first = algorithm.advantages(fake_batch([1.0, NAN, 1.0], valid=[True, False, True]))[:, 1]
    assert first.tolist() == pytest.approx([1.0, 0.0, 0.95])
    resumed = algorithms.get("rae")
    resumed.load_state_dict(algorithm.state_dict())
    baseline = 0.95 * 0.05 + 0.05
    assert resumed.advantages(fake_batch([0.5]))[0, 1].item() == pytest.approx(0.5 - baseline)
    for _ in range(200):
        algorithm.advantages(fake_batch([0.3]))
    assert algorithm.state_dict()["baseline"] == pytest.approx(0.3, abs=1e-3)


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


def test_token_rewards_say_all_that_a_row_earned():
    given = torch.tensor([[7.0, 0.25, 7.0, 0.5], [0.0, 0.0, 0.0, 0.0]])
    batch = fake_batch([0.0, 9.0], token_rewards=given)
    assert episode_rewards(batch).tolist() == [0.75, 0.0]
    assert estimate("dr_grpo", batch)[:, 1].tolist() == [0.375, -0.375]


def test_state_survives_and_foreign_state_is_refused():
    running = algorithms.get("reinforce_running")
    for algorithm in (running, *map(algorithms.get, algorithms.names())):
        state = algorithm.state_dict()
        algorithm.load_state_dict(state)
        for foreign in ({"mean": 1.0}, {"total": 1.0}, {"total": 1.0, "weight": "2"}, {"baseline": 1}):
            with pytest.raises(InvariantError, match=f"baseline={algorithm.baseline} keeps"):
                algorithm.load_state_dict(foreign)
        assert algorithm.state_dict() == state
    for one, other in ((running, {}), (algorithms.get("reinforce"), running.state_dict())):
        with pytest.raises(InvariantError, match=f"baseline={one.baseline} keeps"):
            one.load_state_dict(other)


@pytest.mark.parametrize("attribute", ["needs_group", "baseline", "trust_region", "distributions"])
def test_what_rules_read_without_torch_is_what_the_code_says(attribute):
    rooms = (algorithms, losses, kl)
    said = {name: getattr(room.get(name), attribute, False) for room in rooms for name in room.names()}
    wanted = [True] if attribute != "baseline" else ["group"]
    assert {name for name, value in said.items() if value in wanted} == {
        name for name, entry in SAID.items() if attribute in entry
    }


@pytest.mark.covers("SR-03")
def test_unknown_name_lists_the_known_ones():
    with pytest.raises(InputError, match="dr_grpo, gae, grpo, rae, reinforce, reinforce_none, reinforce_pp"):
        algorithms.get("grop")
