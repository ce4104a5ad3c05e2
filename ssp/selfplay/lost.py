"""Calls to learners, whose state dies with them."""

from __future__ import annotations

from typing import Any

from ssp.base.errors import Fault, SspError
from ssp.selfplay.cast import Cast

GONE = "payload_lost"
"""Cause of a call that did not begin, because what it was given is gone with its node."""


class LearnerLost(SspError):
    """A learner died and its state is gone: the run goes back to its last checkpoint."""

    @property
    def payload(self) -> bool:
        """It lives, and lacks what it was given."""
        return isinstance(self.__cause__, Fault) and self.__cause__.cause == GONE


async def call_learner(cast: Cast, role: str, method: str, *args: Any) -> Any:
    """Call the learner of `role`; its fault is a LearnerLost, whatever it was asked to do."""
    try:
        return await cast.learners[role].call(0, method, *args)
    except Fault as fault:
        raise LearnerLost(f"{role} learner: {fault}") from fault
