"""Where the KL acts, whitening around a critic, and episodes of several rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from solo import SoloLearner

from ssp.base.tokenlog import Kind
from ssp.config.role import StageConfig
from ssp.learning import algorithms
from ssp.learning.batch import Batch, collate, mini_batches
from ssp.learning.objective import estimate


def batch_of(rewards, mask, **extra):
    n = len(rewards)
    return Batch(
        ids=torch.zeros(mask.shape, dtype=torch.long),
        mask=mask,
        logprobs=torch.zeros(mask.shape),
        rewards=torch.tensor(rewards),
        valid=torch.ones(n, dtype=torch.bool),
        groups=torch.zeros(n, dtype=torch.long),
        **extra,
    )


MASK = torch.tensor([[False, True, False, True], [False, True, True, False]])
PENALTY = torch.tensor([[0.0, 0.1, 0.0, 0.3], [0.0, 0.0, 0.2, 0.0]])


@pytest.mark.covers("EP-08", "SR-04")
def test_four_places_of_the_kl_give_four_advantages():
    batch = batch_of([1.0, 0.0], MASK)

    def of(place, name="dr_grpo"):
        return estimate(algorithms.get(name), batch, PENALTY, place).advantages

    half = torch.tensor([[0.0, 0.5, 0.0, 0.5], [0.0, -0.5, -0.5, 0.0]])
    torch.testing.assert_close(of("loss"), half)
    torch.testing.assert_close(of("advantage"), half - PENALTY)
    later = torch.tensor([[0.0, 0.4, 0.0, 0.3], [0.0, 0.2, 0.2, 0.0]])
    torch.testing.assert_close(of("future"), half - later)
    # Episode rewards 1 - 0.4 and 0 - 0.2: mean 0.2, so ±0.4 on every token.
    torch.testing.assert_close(of("reward"), 0.8 * half)
    # With an estimator that tells tokens apart, a token pays for itself and for what follows.
    batch = replace(batch, values=torch.zeros(MASK.shape))
    got = algorithms.get("gae").advantages(
        replace(batch, token_rewards=torch.tensor([[0.0, -0.1, 0, 0.7], [0, 0, -0.2, 0]]))
    )
    torch.testing.assert_close(got, torch.tensor([[0.0, 0.6, 0.0, 0.7], [0.0, -0.2, -0.2, 0.0]]))
    assert torch.equal(estimate(algorithms.get("gae"), batch, PENALTY, "reward").targets, got)


def test_a_critics_advantages_are_whitened_over_model_tokens_and_its_targets_are_not():
    values = torch.tensor([[5.0, 0.2, 5.0, 0.4], [5.0, 0.1, 0.3, 5.0]])
    found = estimate(algorithms.get("gae"), batch_of([1.0, 0.0], MASK, values=values))
    raw = torch.tensor([0.8, 0.6, -0.1, -0.3])
    torch.testing.assert_close(found.advantages[MASK], (raw - raw.mean()) / (raw.std() + 1e-6))
    torch.testing.assert_close(found.targets[MASK], torch.tensor([1.0, 1.0, 0.0, 0.0]))
    assert torch.equal(found.advantages[~MASK], torch.zeros(4))


@pytest.mark.covers("SR-04")
def test_the_penalty_is_the_coefficient_times_the_gap_to_the_reference(model_dir, make_batch, role):
    """r_t ← r_t - beta (log pi_old - log pi_ref), off the observations."""
    role.kl.coef, role.kl.kind, role.kl.place = 0.5, "k1", "reward"
    learner, batch = SoloLearner(model_dir, role), make_batch(8)
    on = batch.mask
    shift = torch.randn(on.shape, generator=torch.Generator().manual_seed(0))
    moved = replace(batch, logprobs=torch.where(on, batch.logprobs + shift, float("nan")))
    figures = learner.update(moved)
    assert figures["kl/reference"] == pytest.approx(
        float(shift[on].mean()), abs=1e-4
    )  # the reference is the start model
    penalty = torch.where(on, 0.5 * shift, 0.0)
    want = estimate(learner.algorithm, batch, penalty, "reward").advantages
    assert figures["advantage/mean_abs"] == pytest.approx(float(want[on].abs().mean()), abs=1e-4)


@pytest.fixture
def dropped(make_episodes):
    """Eight episodes; the first two lost an observation on the way and went on in another context."""
    episodes = make_episodes(8)
    for episode in episodes[:2]:
        kinds = episode.log.kinds
        start = kinds.index(Kind.OBSERVATION)
        end = start + kinds.count(Kind.OBSERVATION)
        episode.log.drop(start, end)
        episode.log.append_model([5, 6, 7], [-1.0] * 3, 4)
    return episodes


def test_every_model_token_is_trained_once_in_its_own_context(dropped):
    batch = collate(dropped, [1.0, 0.0] * 4, [e.game for e in dropped])
    assert batch.source.tolist() == [*range(8), 0, 1] and len(batch) == 10
    assert batch.rewards[8:].tolist() == [1.0, 0.0] and batch.groups[8] == batch.groups[0]
    log = dropped[0].log
    seen = [int(t) for t in batch.ids[8][: len(log.context())]]
    assert seen == log.context() and len(seen) < len(log)
    assert batch.ids[8][batch.mask[8]].tolist() == [5, 6, 7]
    assert int(batch.mask[[0, 8]].sum()) == int(log.mask.sum())
    assert len(batch.episodes()) == 8 and batch.episodes().source is None


@pytest.mark.parametrize(
    "name", ["grpo", "dr_grpo", "rloo", "reinforce", "reinforce_pp", "reinforce_pp_baseline", "rae"]
)
def test_a_continuation_gets_its_episodes_advantage_and_enters_no_baseline(dropped, name):
    rewards, games = [1.0, 0.0, 0.0, 1.0, 0.5, 0.0, 1.0, 0.25], [e.game for e in dropped]
    batch = collate(dropped, rewards, games)
    got = estimate(algorithms.get(name), batch).advantages
    alone = estimate(algorithms.get(name), batch.episodes()).advantages
    if name.startswith("reinforce_pp"):  # each token of the policy counts once, whichever context it was sampled in
        on = got[batch.mask]
        assert float(on.mean()) == pytest.approx(0.0, abs=1e-6) and float(on.std()) == pytest.approx(1.0, abs=1e-4)
        before = alone[batch.episodes().mask]
        first = got[:8][batch.mask[:8]]
        torch.testing.assert_close((first - first.mean()) / first.std(), (before - before.mean()) / before.std())
    else:
        assert torch.equal(got[:8], alone)
    for row, source in ((8, 0), (9, 1)):
        (value,) = set(got[row][batch.mask[row]].tolist())
        assert {value} == set(got[source][batch.mask[source]].tolist())
        assert torch.equal(got[row][~batch.mask[row]], torch.zeros(int((~batch.mask[row]).sum())))


@pytest.mark.parametrize("name", ["reinforce_pp", "reinforce_pp_baseline"])
def test_whitening_is_over_the_tokens_of_all_contexts(make_episodes, name):
    """A long continuation with a rare reward moves mean and spread as much as if its episode were one context."""
    short, long = make_episodes(8), make_episodes(8)
    for episodes in (short, long):
        for episode in episodes[:2]:
            if episodes is short:
                start = episode.log.kinds.index(Kind.OBSERVATION)
                episode.log.drop(start, start + episode.log.kinds.count(Kind.OBSERVATION))
            episode.log.append_model([5] * 40, [-1.0] * 40, 4)
    rewards, games = [1.0, 1.0, 0.0, 0.0, 0.5, 0.0, 1.0, 0.25], [e.game for e in short]
    cut, whole = collate(short, rewards, games), collate(long, rewards, games)
    assert cut.source is not None and whole.source is None and int(cut.mask.sum()) == int(whole.mask.sum())
    got, want = (estimate(algorithms.get(name), batch).advantages for batch in (cut, whole))
    for row in range(8):
        assert got[row][cut.mask[row]].unique().tolist() == pytest.approx(
            want[row][whole.mask[row]].unique().tolist(), abs=1e-5
        )


@pytest.mark.covers("EP-08")
def test_a_kl_in_the_reward_is_not_in_the_group_mean_of_reinforce_pp_baseline():
    """r_t - penalty_t, less the mean of the raw rewards on the last token. Only the first of two groups pays for its KL."""
    mask, penalty = torch.cat([MASK, MASK]), torch.cat([PENALTY, torch.zeros(PENALTY.shape)])
    batch = replace(batch_of([1.0, 0.0, 1.0, 0.0], mask), groups=torch.tensor([0, 0, 1, 1]))
    found = estimate(algorithms.get("reinforce_pp_baseline"), batch, penalty, "reward").advantages
    returns = torch.tensor([0.5 - 0.4, 0.5 - 0.3, -0.5 - 0.2, -0.5 - 0.2, 0.5, 0.5, -0.5, -0.5])
    torch.testing.assert_close(found[mask], (returns - returns.mean()) / (returns.std() + 1e-6))


@pytest.mark.parametrize("aggregate", ["token-mean", "sequence-mean", "fixed-length"])
def test_an_episode_weighs_the_same_in_one_context_or_two(model_dir, dropped, role, aggregate):
    role.aggregate = aggregate
    learner = SoloLearner(model_dir, role)
    batch = collate(dropped, [1.0, 0.0] * 4, [e.game for e in dropped])
    weights = learner.objective.weights(batch, batch.mask, torch.arange(10), 1)
    tokens = batch.mask.sum(dim=1)
    lengths = tokens[:8].clone()
    lengths[:2] += tokens[8:]
    want = {
        "token-mean": torch.full((8,), 1 / int(tokens.sum())),
        "sequence-mean": 1 / (8 * lengths),
        "fixed-length": torch.full((8,), 1 / (8 * role.limits.total_tokens)),
    }[aggregate]
    torch.testing.assert_close(weights, want[batch.source])
    assert learner.update(batch)["tokens"] == int(tokens.sum())


def test_mini_batches_keep_order_and_an_episodes_rows_together():
    sources = torch.tensor([0, 1, 2, 3, 4, 0, 3])
    assert [part.tolist() for part in mini_batches(sources, 2)] == [[0, 1, 5], [2, 3, 6], [4]]
    assert [part.tolist() for part in mini_batches(sources, 0)] == [[0, 1, 2, 3, 4, 5, 6]]
    assert [part.tolist() for part in mini_batches(sources, 99)] == [[0, 1, 2, 3, 4, 5, 6]]
    assert [len(part) for part in mini_batches(torch.arange(10), 4)] == [4, 3, 3]


@pytest.mark.parametrize(("kind", "place"), [("k1", "reward"), ("k1", "advantage"), ("k3", "loss"), ("full", "loss")])
def test_policy_and_reference_are_measured_at_the_sampling_temperature(model_dir, make_batch, role, kind, place):
    """The start model against itself, sampled at another temperature than 1: no KL, and no mismatch."""
    role.sampling.temperature = 0.6
    role.kl.coef, role.kl.kind, role.kl.place = 0.5, kind, place
    figures = SoloLearner(model_dir, role).update(make_batch(8, temperature=0.6))
    assert figures["kl/reference"] == pytest.approx(0.0, abs=1e-5)
    assert figures["logprob_mismatch/max"] < 1e-4


def test_fixed_length_divides_by_the_limit_of_the_updates_stage(model_dir, make_batch, role):
    """The rate is 0, so that every update sees the same policy."""
    role.aggregate, role.loss, role.learner.lr, role.limits.total_tokens = "fixed-length", "pg", 0.0, 100
    role.limits.stages = [StageConfig(2, 0, 200), StageConfig(4, 0, 400)]
    learner, batch = SoloLearner(model_dir, role), make_batch(8)
    losses = [learner.update(batch)["loss"] for _ in range(4)]
    assert losses[0] != 0
    assert losses == pytest.approx([losses[0], losses[0] / 2, losses[0] / 2, losses[0] / 4])
