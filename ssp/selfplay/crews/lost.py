"""What is lost with a process or its node."""

from __future__ import annotations

from ssp.base.errors import SspError

GONE = "payload_lost"
"""Cause of a call that did not begin, because what it was given is gone with its node."""


class LearnerLost(SspError):
    """A learner died and its state is gone: the run goes back to its last checkpoint."""
