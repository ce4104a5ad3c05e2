"""Two roles, one policy: one optimizer step on the sum of both gradients, or one after the other."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from ssp.learning.learner import PolicyLearner


@pytest.fixture
def both(role):
    """A proposer by GRPO and a solver by REINFORCE++, as SP-06 has them."""
    solver = copy.deepcopy(role)
    solver.algorithm, solver.loss, solver.aggregate, solver.kl.coef = "reinforce_pp", "pg", "sequence-mean", 0.1
    return {"proposer": role, "solver": solver}


@pytest.fixture
def batches(make_batch):
    return {"proposer": make_batch(8, seed=1), "solver": make_batch(12, seed=2)}


def gradient(learner, batches):
    learner.backend.optimizer.step = lambda: None
    for objective in learner.objectives.values():
        objective.config.learner.max_grad_norm = 1e9
    found = learner.update(batches)
    return {name: p.grad.clone() for name, p in learner.policy.model.named_parameters()}, found


@pytest.mark.covers("SP-06")
def test_the_combined_update_is_the_sum_of_the_separate_gradients(model_dir, both, batches):
    for block in both.values():
        block.learner.combine = True
    together, figures = gradient(PolicyLearner(model_dir, both), batches)
    apart = [gradient(PolicyLearner(model_dir, {name: both[name]}), {name: batches[name]}) for name in both]
    for name, grad in together.items():
        torch.testing.assert_close(grad, apart[0][0][name] + apart[1][0][name], atol=1e-6, rtol=0)
    for role, (_, alone) in zip(both, apart, strict=True):
        assert figures[role]["loss"] == pytest.approx(alone[role]["loss"], abs=1e-7)
    assert figures["proposer"]["grad_norm"] == figures["solver"]["grad_norm"]


@pytest.mark.covers("SP-06")
def test_else_the_proposers_step_comes_first(model_dir, both, batches):
    learner, by_hand = PolicyLearner(model_dir, both), PolicyLearner(model_dir, both)
    learner.update(batches)
    by_hand.update({"proposer": batches["proposer"]})
    by_hand.update({"solver": batches["solver"]})
    ours, theirs = learner.weights(), by_hand.weights()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert (learner.step, by_hand.step) == (1, 2)
