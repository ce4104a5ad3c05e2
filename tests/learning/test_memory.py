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


OTHER = RuntimeError("shape mismatch")


@pytest.mark.parametrize("error", [*SHORT, OTHER], ids=lambda error: type(error).__name__)
def test_it_ends_the_update_and_says_what_to_set(model_dir, make_batch, role, error):
    """Where memory is short; any other error goes on as it is."""
    learner = SoloLearner(model_dir, role)

    def fail(loss, last):
        raise error

    learner.inner.backend.backward = fail
    kind, words = OutOfMemory, r"200 tokens a micro-batch: .*learner\.token_budget=100"
    if error is OTHER:
        kind, words = RuntimeError, "shape mismatch"
    with pytest.raises(kind, match=words) as caught:
        learner.update(make_batch(8))
    assert isinstance(caught.value, SspError) == (error is not OTHER) and learner.step == 0
