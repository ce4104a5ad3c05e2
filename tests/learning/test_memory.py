"""Memory that does not suffice: half the tokens once, from clean gradients; the second time the run ends."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from solo import SoloLearner

from ssp.base.errors import OutOfMemory, SspError
from ssp.learning.memory import Memory

SHORT = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    MemoryError(),
    RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes."),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
]


def failing(learner, calls, error):
    """Let the backward passes with these numbers (from 1) fail."""
    backward, made = learner.inner.backend.backward, []

    def fail(loss, last):
        made.append(learner.inner.memory.tokens)
        if len(made) in calls:
            raise error
        backward(loss, last)

    learner.inner.backend.backward = fail
    return made


@pytest.mark.parametrize("error", SHORT, ids=lambda error: type(error).__name__)
def test_it_is_halved_and_the_update_is_the_same(model_dir, make_batch, role, error, capsys):
    batch = make_batch(8)
    whole, short = SoloLearner(model_dir, role), SoloLearner(model_dir, role)
    made = failing(short, [2], error)
    want, got = whole.update(batch), short.update(batch)
    assert made[:3] == [200, 200, 100] and role.learner.token_budget == 200
    assert "learner.token_budget is 100 from now on" in capsys.readouterr().err
    assert got.pop("token_budget") == 100 and "token_budget" not in want
    for key in set(want) - {"seconds", "mfu"}:
        assert got[key] == pytest.approx(want[key], abs=1e-5), key
    # The gradient's sum differs by its rounding alone; Adam divides by its size, and so makes that of a tiny one larger.
    for one, other in zip(whole.optimizer.state.values(), short.optimizer.state.values(), strict=True):
        np.testing.assert_allclose(other["exp_avg"], one["exp_avg"], atol=1e-8, rtol=1e-5)
    for name, weight in whole.weights().items():
        np.testing.assert_allclose(short.weights()[name], weight, atol=1e-5, rtol=0)


def test_the_second_time_ends_the_run_and_says_what_to_set(model_dir, make_batch, role):
    learner, batch = SoloLearner(model_dir, role), make_batch(8)
    failing(learner, [1, 2], SHORT[0])
    with pytest.raises(OutOfMemory, match=r"learner\.token_budget=50") as caught:
        learner.update(batch)
    assert isinstance(caught.value, SspError) and learner.step == 0


def test_other_errors_are_none_of_its_business(model_dir, make_batch, role):
    learner = SoloLearner(model_dir, role)
    failing(learner, [1], RuntimeError("shape mismatch"))
    with pytest.raises(RuntimeError, match="shape mismatch"):
        learner.update(make_batch(8))
    assert learner.inner.memory.tokens == 200


def test_inside_a_collective_a_rank_cannot_begin_again():
    def attempt():
        raise SHORT[0]

    memory = Memory(64)
    with pytest.raises(OutOfMemory):
        memory.within(attempt, lambda: None, local=False)
    assert not memory.halved
