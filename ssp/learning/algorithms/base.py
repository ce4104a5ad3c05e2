"""What an advantage estimator is, and the steps that several of them share.

Void rows (law 2) neither get an advantage nor enter anyone's mean or spread; a position which is not a model token has
advantage 0 and is no step of time (law 1): observations are skipped, not counted."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ssp.base.errors import InvariantError
from ssp.learning.batch import Batch

EPSILON = 1e-6


class Algorithm(ABC):
    """One advantage estimator; a stateless one overrides `advantages` only.

    Of a batch it reads rewards float [N], valid bool [N], groups long [N], mask bool [N, T] and, where it is there:
    token_rewards float [N, T], which then say all that a row earned, `rewards` included; values float [N, T], the critic's
    before each token; baseline_rewards float [N], what the greedy answer earned, NaN where that attempt is void.

    Every mean, spread and count is over the rows that are valid: of n attempts of which v are valid a spread has v - 1
    in the denominator, and a lone survivor (v = 1 < n) has nothing to be compared with, and advantage 0.

    `gamma` discounts, `lam` is GAE's trace decay, both a policy token. What an estimator says of itself:
    - `needs_values`: it reads a critic's `values`.
    - `needs_group`: it compares the rows of a group, so one that is alone in its group is left out.
    - `baseline`: what a reward is measured against. Where that is "group", a group of equal rewards is
      left out too, unless a KL, entropy bonus or LLDS acts on it.
    - `by_turn`: it tells turns apart, so that a group counts as equal only where every turn earned the same.
    - `whitens`: it standardises over the policy's tokens."""

    name = baseline = ""
    needs_values = whitens = needs_group = by_turn = False
    kept: Mapping[str, float] = {}
    """What must survive a restart, of an estimator that keeps numbers alone."""

    def __init__(self, gamma: float = 1.0, lam: float = 1.0) -> None:
        self.gamma, self.lam = gamma, lam

    @abstractmethod
    def advantages(self, batch: Batch) -> Tensor:
        """float32 [N, T]: advantage on model tokens of valid rows, exactly 0 elsewhere.

        InvariantError when a valid row has a reward that is not finite, or when a field that it needs is missing."""

    def state_dict(self) -> dict[str, Any]:
        """What must survive a restart, as plain JSON data."""
        return dict(self.kept)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave; InvariantError for a state that this estimator did not write."""
        if set(state) != set(self.kept) or not all(isinstance(value, float) for value in state.values()):
            raise InvariantError(f"{self.name} keeps {sorted(self.kept)}, not {dict(state)}")
        self.kept = dict(state)


def required(batch: Batch, field: str, name: str) -> Tensor:
    """An optional field that the estimator `name` cannot do without. InvariantError when the batch has none."""
    found: Tensor | None = getattr(batch, field, None)
    if found is None:
        raise InvariantError(f"{name} needs a batch with {field}")
    return found


def token_rewards(batch: Batch) -> Tensor:
    """What each token earned, float64 [N, T], 0 off the model tokens of valid rows.

    Without `batch.token_rewards` the episode's reward lies on its last model token and nowhere else (SR-33).
    InvariantError when a valid row has a reward that is not finite."""
    on = batch.mask.bool() & batch.valid.bool()[:, None]
    given = getattr(batch, "token_rewards", None)
    if given is None:
        given = torch.where(ends(on), batch.rewards[:, None], 0.0)
    out = torch.where(on, given.double(), 0.0)
    _finite(out)
    return out


def ends(on: Tensor) -> Tensor:
    """bool [N, T]: the last true position of each row of `on` bool [N, T]; none in a row that has none."""
    return on & (on.flip(1).cumsum(1).flip(1) == 1)


def episode_rewards(batch: Batch) -> Tensor:
    """What each row earned in all, float64 [N]: its `rewards`, or the sum of its `token_rewards` where these are given.

    Void rows keep their NaN. InvariantError when a valid row has a reward that is not finite."""
    if getattr(batch, "token_rewards", None) is not None:
        return token_rewards(batch).sum(dim=1)
    _finite(batch.rewards[batch.valid.bool()])
    return batch.rewards.double()


def returns(rewards: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """[N, T]: G_t = r_t + gamma G_{t+1} of token rewards [N, T] over the tokens in `mask`, put side by side; 0 elsewhere."""
    on = mask.bool()
    out, later = torch.zeros_like(rewards), rewards.new_zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        later = torch.where(on[:, t], rewards[:, t] + gamma * later, later)
        out[:, t] = torch.where(on[:, t], later, 0.0)
    return out


def standardise(rewards: Tensor, valid: Tensor, groups: Tensor, spread: bool = True, lone: bool = False) -> Tensor:
    """(r - mean) / (sample std + 1e-6) of each group's valid entries, float64 [N]; without `spread` r - mean.

    Exactly 0 for void entries and for a group whose rewards are all equal: it does not tell better from worse. So is a
    group with one valid entry, but `lone` gives a group that never had another one mean 0 and standard deviation 1.
    Rewards of void entries may be NaN; they are never read."""
    scored = valid.bool()
    values = rewards[scored].double()
    _, group, count = torch.unique(groups[scored], return_inverse=True, return_counts=True)
    per_group = values.new_zeros(len(count))
    centred = values - (per_group.index_add(0, group, values) / count)[group]
    if spread:
        squares = per_group.index_add(0, group, centred.square())
        centred = centred / ((squares / (count - 1).clamp(min=1)).sqrt() + EPSILON)[group]
    # Equality, not std > 0: rounding in the mean would make a tiny spread out of equal rewards.
    extremes = [per_group.scatter_reduce(0, group, values, how, include_self=False) for how in ("amin", "amax")]
    found = torch.where((extremes[0] < extremes[1])[group], centred, 0.0)
    if lone:
        _, member, size = torch.unique(groups, return_inverse=True, return_counts=True)
        found = torch.where((size[member] == 1)[scored], values / (1.0 + EPSILON if spread else 1.0), found)
    out = torch.zeros(rewards.shape[0], dtype=torch.float64)
    out[scored] = found
    return out


def whiten(values: Tensor, on: Tensor) -> Tensor:
    """`values` [N, T] standardised over all tokens where `on` [N, T], each for itself and not a mean a row; float32,
    exactly 0 elsewhere."""
    flat, out = values[on], torch.zeros(on.shape, dtype=torch.float32)
    every, one_group = torch.ones(len(flat), dtype=torch.bool), torch.zeros(len(flat), dtype=torch.long)
    out[on] = standardise(flat, every, one_group).float()
    return out


def over_tokens(per_row: Tensor, mask: Tensor) -> Tensor:
    """Row values [N] put on every model token of their row: float32 [N, T], 0 off the mask."""
    return torch.where(mask.bool(), per_row.float()[:, None], 0.0)


def _finite(rewards: Tensor) -> None:
    if not bool(torch.isfinite(rewards).all()):
        raise InvariantError("a valid row has a reward that is not finite; only void rows have no value")
