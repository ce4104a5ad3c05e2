"""The cold start: a tiny policy trained from random weights on mediocre traces, so that self-play can begin."""

from __future__ import annotations

from ssp.learning.coldstart.store import ensure, recipe_hash

__all__ = ["ensure", "recipe_hash"]
