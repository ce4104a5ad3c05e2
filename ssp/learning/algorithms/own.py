"""A user's own estimator, looked at each time: `{role}.algorithm=my_file.py:Name`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ssp.base.errors import InputError
from ssp.config import own
from ssp.learning.algorithms.base import Algorithm, RewardBatch


class Own(Algorithm):
    """The `Algorithm` of a user at `place`, made with `gamma` and `lam`. InputError when no such class is there."""

    def __init__(self, place: str, gamma: float, lam: float) -> None:
        super().__init__(gamma, lam)
        self.name = own.title(place)
        example = f"class {place.rpartition(':')[2]}(ssp.learning.algorithms.base.Algorithm):"
        self._rule = f"the estimator {place}"
        kind = own.find(place, self._rule, example)
        if not isinstance(kind, type) or not issubclass(kind, Algorithm):
            raise InputError(f"{self._rule} is a class that inherits Algorithm", repr(kind), f"write `{example}`")
        if kind.needs_values:
            raise InputError(f"{self._rule} has no critic", "needs_values = True", "use algorithm=gae, which has one")
        try:
            self._inner = kind(gamma, lam)
        except Exception as error:  # a method that is missing, or whatever a user's class raises
            found = f"{type(error).__name__}: {error}"
            raise InputError(
                f"{self._rule} is made by its class, called with (gamma, lam)", found, "correct it"
            ) from error

    def advantages(self, batch: RewardBatch) -> Tensor:
        """float32 [N, T]; see `Algorithm.advantages`. InputError for anything else."""
        given, on = self._inner.advantages(batch), batch.mask.bool() & batch.valid.bool()[:, None]
        if not isinstance(given, Tensor) or given.shape != on.shape:
            found = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
            raise InputError(f"{self._rule} gives one number a token", found, f"return a tensor of {tuple(on.shape)}")
        if not bool(torch.isfinite(given).all()) or bool((given[~on] != 0).any()):
            rule = f"{self._rule} gives finite numbers, and 0 off the model tokens of valid rows"
            raise InputError(rule, "another one", "finish with over_tokens(row_values, batch.mask)")
        return given.detach().float()

    def state_dict(self) -> dict[str, Any]:
        """The user's own."""
        return self._inner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`."""
        self._inner.load_state_dict(state)
