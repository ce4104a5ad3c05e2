"""Traces that are learned again beside an update: the gradient of both, and which traces are drawn."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from solo import SoloLearner, gradients, timeless

from ssp.capacity.plan.costs import Costs, role_costs
from ssp.config.role import RehearsalConfig
from ssp.learning.forward import score
from ssp.learning.learner import PolicyLearner
from ssp.learning.rehearsal import Rehearsal
from ssp.learning.warmup.loop import recipe
from ssp.selfplay.settings import load

COEF = 0.3
OWN = {"rehearsal/nll", "rehearsal/loss", "rehearsal/tokens"}


@pytest.fixture
def traces(make_episodes):
    """Ten traces, whose behaviour log-probs are not the policy's."""
    return make_episodes(10, seed=7)


@pytest.fixture
def rehearsing(role):
    role.sampling.temperature = 0.7
    role.rehearsal = RehearsalConfig(share=0.2)
    role.rehearsal.coef = COEF
    return role


def learner(model_dir, block, traces):
    made = SoloLearner(model_dir, block)
    made.objective.rehearsal = Rehearsal(block, traces, "solver", 5)
    return made


def alone(block):
    """The same role without a rehearsal."""
    without = copy.deepcopy(block)
    without.rehearsal = RehearsalConfig()
    return without


def by_hand(model, traces, temperature):
    """The gradient of the mean of -log pi over the tokens that the traces' policy wrote, by name; that mean; and their
    count."""
    total, count = torch.zeros(()), 0
    for trace in traces:
        ids, mask = torch.tensor([trace.log.ids]), torch.from_numpy(np.array([trace.log.mask]))
        total = total - score(model, ids, mask, temperature)[0].sum()
        count += int(mask.sum())
    (total / count).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}, float(total.detach()) / count, count


@pytest.mark.covers("GA-11")
@pytest.mark.parametrize("packing", [False, True])
def test_the_gradient_is_that_of_play_and_c_times_that_of_the_traces(
    model_dir, rehearsing, make_batch, traces, packing
):
    """Beside 24 episodes, a fifth of an update is 6 traces; whatever the micro-batches."""
    rehearsing.learner.packing = packing
    batch = make_batch(temperature=0.7)
    played, figures = gradients(SoloLearner(model_dir, alone(rehearsing)), batch)
    ours = learner(model_dir, rehearsing, traces)
    drawn = ours.objective.rehearsal.drawn(24, 1, 0)
    assert len(drawn) == len({trace.id for trace in drawn}) == 6
    taught, nll, count = by_hand(SoloLearner(model_dir, alone(rehearsing)).model, drawn, 0.7)
    both, together = gradients(ours, batch)
    for name, grad in both.items():
        torch.testing.assert_close(grad, played[name] + COEF * taught[name], atol=1e-6, rtol=1e-5)
    assert together["rehearsal/nll"] == pytest.approx(nll, rel=1e-5)
    assert together["rehearsal/loss"] == pytest.approx(COEF * nll, rel=1e-5)
    assert together["rehearsal/tokens"] == count
    for name in set(timeless(figures)) - {"grad_norm"}:
        assert together[name] == pytest.approx(figures[name], rel=1e-6), name


def test_nothing_of_who_wrote_a_trace_enters_but_its_tokens(model_dir, rehearsing, make_batch, traces):
    before, _ = gradients(learner(model_dir, rehearsing, traces), make_batch())
    for trace in traces:
        trace.log.logprobs = [-9.0] * len(trace.log)
    after, _ = gradients(learner(model_dir, rehearsing, traces), make_batch())
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("share", "episodes", "count"), [(0.2, 24, 6), (0.5, 8, 8), (0.01, 8, 1), (0.9, 2, 18), (0.25, 10, 3), (0.0, 8, 0)]
)
def test_a_share_is_of_all_episodes_of_an_update(share, episodes, count):
    assert RehearsalConfig(share=share).traces(episodes) == count


def test_who_is_drawn_follows_from_seed_role_update_and_step(rehearsing, traces):
    def names(role="solver", seed=5, episodes=24, update=3, step=1):
        return [trace.id for trace in Rehearsal(rehearsing, traces, role, seed).drawn(episodes, update, step)]

    assert names() == names() and len(names()) == 6
    others = [names("proposer"), names(seed=6), names(update=4), names(step=0)]
    assert all(other != names() for other in others)
    many = names(episodes=100)  # 25 of ten
    counts = [many.count(trace.id) for trace in traces]
    assert sorted(counts) == [2] * 5 + [3] * 5


def test_each_mini_batch_has_its_share(model_dir, rehearsing, make_batch, traces):
    rehearsing.learner.minibatch = 8
    ours = learner(model_dir, rehearsing, traces)
    drawn = []
    given = ours.objective.rehearsal.drawn

    def watched(*asked):
        drawn.append(asked)
        return given(*asked)

    ours.objective.rehearsal.drawn = watched
    figures = ours.update(make_batch())
    assert drawn == [(8, 1, 0), (8, 1, 1), (8, 1, 2)]
    written = sum(int(trace.log.mask.sum()) for asked in drawn for trace in given(*asked))
    assert figures["rehearsal/tokens"] == written


def test_what_is_not_learned_is_not_rehearsed(model_dir, rehearsing, make_batch, traces):
    """An update without signal makes no step, so it moves nothing that a trace would have to hold."""
    batch = make_batch()
    batch.rewards[:] = 1.0
    ours = learner(model_dir, rehearsing, traces)
    before = ours.weights()
    figures = ours.update(batch)
    assert all(np.array_equal(before[name], weight) for name, weight in ours.weights().items())
    assert not OWN & set(figures)
    measured = ours.inner.measure({"solver": make_batch()})["solver"]
    assert not OWN & set(measured)


def test_without_a_coefficient_traces_are_measured_alone(model_dir, rehearsing, make_batch, traces):
    rehearsing.rehearsal.coef = 0.0
    ours, played = learner(model_dir, rehearsing, traces), SoloLearner(model_dir, alone(rehearsing))
    figures = ours.update(make_batch())
    played.update(make_batch())
    assert figures["rehearsal/nll"] > 0.0 == figures["rehearsal/loss"]
    theirs = played.weights()
    assert all(np.array_equal(theirs[name], weight) for name, weight in ours.weights().items())


def test_going_on_is_bit_for_bit_the_uninterrupted_rehearsal(tmp_path, model_dir, rehearsing, make_batch, traces):
    whole, resumed = learner(model_dir, rehearsing, traces), learner(model_dir, rehearsing, traces)
    for seed in (0, 1):
        whole.update(make_batch(seed=seed))
    whole.save(tmp_path / "v2", {"role": "solver"})
    resumed.load(tmp_path / "v2")
    for seed in (2, 3):
        ours, theirs = whole.update(make_batch(seed=seed)), resumed.update(make_batch(seed=seed))
        assert timeless(ours) == timeless(theirs) and OWN <= set(ours)
    weights = resumed.weights()
    assert all(np.array_equal(weights[name], weight) for name, weight in whole.weights().items())


@pytest.mark.parametrize("combine", [False, True])
def test_each_role_of_a_shared_policy_rehearses_its_own(model_dir, rehearsing, make_batch, make_episodes, combine):
    rehearsing.learner.combine = combine
    blocks = {"proposer": copy.deepcopy(rehearsing), "solver": rehearsing}
    both = PolicyLearner(model_dir, blocks)
    own = {"proposer": make_episodes(3, seed=1), "solver": make_episodes(3, seed=2)}
    for name, traces in own.items():
        both.objectives[name].rehearsal = Rehearsal(blocks[name], traces, name, 5)
    figures = both.update({"proposer": make_batch(12, seed=1), "solver": make_batch(12, seed=2)})
    for name, traces in own.items():
        assert figures[name]["rehearsal/tokens"] == sum(int(trace.log.mask.sum()) for trace in traces)


def test_a_warm_start_rehearses_nothing(rehearsing):
    assert recipe(rehearsing).rehearsal == RehearsalConfig()


@pytest.mark.parametrize("config", ["ssp-qwen2.5-7b", "simulated"])
def test_a_plan_counts_what_is_rehearsed(config):
    """By the share of the episodes: half of an update takes as long as the other half."""
    again = ["solver.rehearsal.share=0.5", "warmup.data=traces.jsonl"]
    plain, rehearsed = (role_costs(load(config, typed), "solver", Costs()).token for typed in ([], again))
    assert rehearsed == pytest.approx(2 * plain) and plain > 0
