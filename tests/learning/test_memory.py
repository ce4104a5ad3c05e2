"""Memory that does not suffice: the update ends, and says what to set."""

from __future__ import annotations

import pytest
import torch
from solo import SoloLearner

from ssp.base.errors import OutOfMemory, SspError

SHORT = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    MemoryError(),
    RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes."),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
]


def failing(learner, error):
    def fail(loss, last):
        raise error

    learner.inner.backend.backward = fail


@pytest.mark.parametrize("error", SHORT, ids=lambda error: type(error).__name__)
def test_it_ends_the_update_and_says_what_to_set(model_dir, make_batch, role, error):
    learner = SoloLearner(model_dir, role)
    failing(learner, error)
    with pytest.raises(OutOfMemory, match=r"200 tokens a micro-batch: .*learner\.token_budget=100") as caught:
        learner.update(make_batch(8))
    assert isinstance(caught.value, SspError) and learner.step == 0


def test_other_errors_are_none_of_its_business(model_dir, make_batch, role):
    learner = SoloLearner(model_dir, role)
    failing(learner, RuntimeError("shape mismatch"))
    with pytest.raises(RuntimeError, match="shape mismatch"):
        learner.update(make_batch(8))
