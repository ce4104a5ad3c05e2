"""What an advantage estimator is, and the standardisation that estimators without a critic share.

Owns the step from one reward a row to one advantage a token.
Promises that void rows (law 2) neither get an advantage nor enter anyone's mean or spread, and that every position
which is not a model token has advantage 0 (law 1).
Refuses to know the loss, the model, and how a group came about.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from ssp.errors import InvariantError

EPSILON = 1e-6


class RewardBatch(Protocol):
    """The fields that an estimator reads: rewards float [N], valid bool [N], groups long [N], mask bool [N, T].

    `graders`, long [N], is optional: the version that graded each row.
    """

    @property
    def rewards(self) -> Tensor: ...
    @property
    def valid(self) -> Tensor: ...
    @property
    def groups(self) -> Tensor: ...
    @property
    def mask(self) -> Tensor: ...


class Algorithm(ABC):
    """One advantage estimator; a stateless one overrides `advantages` only."""

    name: str

    @abstractmethod
    def advantages(self, batch: RewardBatch) -> Tensor:
        """float32 [N, T]: advantage on model tokens of valid rows, exactly 0 elsewhere.

        InvariantError when a valid row has a reward that is not finite.
        """

    def state_dict(self) -> dict[str, Any]:
        """What must survive a restart, as plain JSON data."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave; InvariantError for a state that this estimator did not write."""
        if state:
            raise InvariantError(f"{self.name} keeps no state but got {sorted(state)}")


def standardise(rewards: Tensor, valid: Tensor, groups: Tensor) -> Tensor:
    """(r - mean) / (sample std + 1e-6) of each group's valid rows, float64 [N].

    Source: GRPO, Shao et al. 2024 (arXiv 2402.03300), section 4.1.2, with the sample standard deviation and the
    epsilon of verl, which Search Self-play trains with.
    Exactly 0 for void rows, for a group whose rewards are all equal, and for a group with one valid row: neither tells
    better from worse. Rewards of void rows may be NaN; they are never read.
    """
    scored = valid.bool()
    if not bool(torch.isfinite(rewards[scored]).all()):
        raise InvariantError("a valid row has a reward that is not finite; only void rows have no value")
    out = torch.zeros(rewards.shape[0], dtype=torch.float64)
    for group in torch.unique(groups[scored]).tolist():
        rows = scored & (groups == group)
        values = rewards[rows].double()
        # Equality, not std > 0: rounding in the mean would make a tiny spread out of equal rewards.
        if bool((values != values[0]).any()):
            out[rows] = (values - values.mean()) / (values.std() + EPSILON)
    return out


def over_tokens(per_row: Tensor, mask: Tensor) -> Tensor:
    """Row values [N] put on every model token of their row: float32 [N, T], 0 off the mask."""
    return torch.where(mask.bool(), per_row.float()[:, None], 0.0)
