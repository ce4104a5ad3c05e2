"""REINFORCE, with the batch, the past or nothing as the baseline.

Owns the three baselines and the memory of the second. Promises what `standardise` promises for the first, and for the
second that no reward of a batch enters the baseline of that batch. Refuses to look at groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ssp.base.errors import InputError, InvariantError
from ssp.learning.algorithms.base import Algorithm, RewardBatch, episode_rewards, optional, over_tokens, standardise

BASELINES = ("batch", "running", "none")
DECAY = 0.9


class Reinforce(Algorithm):
    """The same advantage on every model token of the episode. Source: Williams 1992 (REINFORCE with a baseline).

    batch: A = (r - batch mean) / (batch std + 1e-6); a batch whose rows were graded by several versions (`graders`) is
    standardised within each of them (law 4).
    running: A = r - b, b = sum_s 0.9^(t-1-s) m_s / sum_s 0.9^(t-1-s) over the earlier batches s < t that had a valid row,
    m_s the mean of their valid rewards; b = 0 in the first. Stateful: each call moves the baseline.
    none: A = r.
    """

    name = "reinforce"

    def __init__(self, gamma: float = 1.0, lam: float = 1.0, baseline: str = "batch") -> None:
        """InputError for an unknown baseline."""
        super().__init__(gamma, lam)
        if baseline not in BASELINES:
            raise InputError(
                "baseline must be a known name", baseline, f"set baseline to one of: {', '.join(BASELINES)}"
            )
        self._kind = baseline
        self._total = self._weight = 0.0

    def advantages(self, batch: RewardBatch) -> Tensor:
        """float32 [N, T]; see `Algorithm.advantages`."""
        rewards = episode_rewards(batch)
        if self._kind == "batch":
            graders = optional(batch, "graders")
            labels = torch.zeros_like(batch.groups) if graders is None else graders
            return over_tokens(standardise(rewards, batch.valid, labels), batch.mask)
        valid = batch.valid.bool()
        out = torch.where(valid, rewards - (self._total / self._weight if self._weight else 0.0), 0.0)
        if self._kind == "running" and bool(valid.any()):
            self._total = DECAY * self._total + float(rewards[valid].mean())
            self._weight = DECAY * self._weight + 1.0
        return over_tokens(out, batch.mask)

    def state_dict(self) -> dict[str, Any]:
        """What the running baseline is made of; nothing for the others."""
        return {"total": self._total, "weight": self._weight} if self._kind == "running" else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`; InvariantError for the state of another baseline or estimator."""
        numbers = all(isinstance(value, float) for value in state.values())
        if set(state) != set(self.state_dict()) or not numbers:
            raise InvariantError(
                f"reinforce with baseline={self._kind} keeps {sorted(self.state_dict())}, not {dict(state)}"
            )
        if state:
            self._total, self._weight = state["total"], state["weight"]
