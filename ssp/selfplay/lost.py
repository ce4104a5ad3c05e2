"""Calls to learners, whose state dies with them.

Owns the one fault that takes a run back to its last checkpoint. Refuses to repeat a call.
"""

from __future__ import annotations

from typing import Any

from ssp.errors import Fault, SspError
from ssp.selfplay.cast import Cast


class LearnerLost(SspError):
    """A learner died: its state is gone, and the run goes back to the last checkpoint."""


async def call_learner(cast: Cast, role: str, method: str, *args: Any) -> Any:
    """Call the learner of `role`; its fault is a LearnerLost, whatever it was asked to do."""
    try:
        return await cast.learners[role].call(0, method, *args)
    except Fault as fault:
        raise LearnerLost(f"{role} learner: {fault}") from fault
