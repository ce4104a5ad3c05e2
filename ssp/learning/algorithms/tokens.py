"""From credits to tokens, and the steps that estimators over tokens share.

Void rows (law 2) neither get an advantage nor enter anyone's mean or spread. A position that is not
a model token has advantage 0 and is no step of time (law 1): observations are skipped, not
counted."""

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ssp.base.errors import InvariantError
from ssp.learning.batch import Batch
from ssp.learning.scored import Credit, Scored, standardised, whole_batch

Estimate = Callable[[Sequence[Scored]], list[Credit]]


def of_credits(estimate: Estimate, batch: Batch) -> Tensor:
    """float32 [N, T]: each valid row's credit, as `estimate` gives it, on its model tokens: one
    number on all of them, several on a turn each; exactly 0 elsewhere."""
    rows = torch.nonzero(batch.valid).squeeze(1).tolist()
    credits = estimate(_scored(batch, rows))
    out = torch.zeros(batch.mask.shape)
    turns = turn_numbers(batch.mask)
    for row, credit in zip(rows, credits, strict=True):
        values = torch.tensor(credit, dtype=torch.float64).float()
        on = batch.mask[row].bool()
        # What comes after the last credit counts as its turn.
        places = turns[row, on].clamp(max=len(credit) - 1)
        out[row, on] = values[places]
    return out


def turn_numbers(mask: Tensor) -> Tensor:
    """long [N, T]: the turn of each model token of `mask` bool [N, T], from 0; a turn is an
    unbroken run of them."""
    on = mask.bool()
    before = torch.nn.functional.pad(on, (1, -1))
    return (on & ~before).cumsum(1) - 1


def _scored(batch: Batch, rows: list[int]) -> list[Scored]:
    """The valid `rows` of a batch as their estimator sees them."""
    groups = batch.groups.tolist()
    sizes = Counter(groups)
    rewards = episode_rewards(batch).tolist()
    by_turn = turn_rewards(batch) if batch.token_rewards is not None else [()] * len(groups)
    baselines: list[float | None] = [None] * len(groups)
    if batch.baseline_rewards is not None:
        baselines = batch.baseline_rewards.tolist()
    episodes = []
    for row in rows:
        group = groups[row]
        episode = Scored(
            reward=rewards[row],
            group=group,
            expected=sizes[group],
            peers=len(groups),
            turns=by_turn[row],
            baseline=baselines[row],
        )
        episodes.append(episode)
    return episodes


def turn_rewards(batch: Batch) -> list[tuple[float, ...]]:
    """What each turn of each row earned, by `batch.token_rewards`."""
    earned = token_rewards(batch)
    turns = turn_numbers(batch.mask)
    counts = (turns.amax(dim=1) + 1).tolist()
    rows = []
    for row, count in enumerate(counts):
        on = batch.mask[row].bool()
        sums = torch.zeros(count, dtype=torch.float64)
        sums.index_add_(0, turns[row, on], earned[row, on])
        rows.append(tuple(sums.tolist()))
    return rows


def required(batch: Batch, field: str, name: str) -> Tensor:
    """An optional field that the estimator `name` cannot do without. InvariantError when the batch
    has none."""
    value: Tensor | None = getattr(batch, field)
    if value is None:
        raise InvariantError(f"{name} needs a batch with {field}")
    return value


def trained(batch: Batch) -> Tensor:
    """bool [N, T]: the model tokens of valid rows."""
    return batch.mask.bool() & batch.valid.bool()[:, None]


def token_rewards(batch: Batch) -> Tensor:
    """What each token earned, float64 [N, T], 0 off the model tokens of valid rows.

    Without `batch.token_rewards` the episode's reward lies on its last model token and nowhere else
    (SR-33). InvariantError when a valid row has a reward that is not finite."""
    on = trained(batch)
    earned = batch.token_rewards
    if earned is None:
        earned = torch.where(ends(on), batch.rewards[:, None], 0.0)
    out = torch.where(on, earned.double(), 0.0)
    _finite(out)
    return out


def ends(on: Tensor) -> Tensor:
    """bool [N, T]: the last true position of each row of `on` bool [N, T]; none in a row that has
    none."""
    return on & (on.flip(1).cumsum(1).flip(1) == 1)


def episode_rewards(batch: Batch) -> Tensor:
    """What each row earned in all, float64 [N]: its `rewards`, or the sum of its `token_rewards`
    where these are given.

    Void rows keep their NaN. InvariantError when a valid row has a reward that is not finite."""
    if batch.token_rewards is not None:
        return token_rewards(batch).sum(dim=1)
    _finite(batch.rewards[batch.valid.bool()])
    return batch.rewards.double()


def returns(rewards: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """[N, T]: G_t = r_t + gamma G_{t+1} of token rewards [N, T] over the tokens in `mask`, put side
    by side; 0 elsewhere."""
    on = mask.bool()
    out = torch.zeros_like(rewards)
    later = rewards.new_zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        later = torch.where(on[:, t], rewards[:, t] + gamma * later, later)
        out[:, t] = torch.where(on[:, t], later, 0.0)
    return out


def centred_in_groups(batch: Batch) -> Tensor:
    """float64 [N]: r - group mean of each valid row's `rewards`; of a group of one its reward; 0
    for void rows."""
    valid = batch.valid.bool()
    rewards = batch.rewards.double()
    _finite(rewards[valid])
    centred = standardised(rewards[valid].numpy(), batch.groups[valid].numpy(), spread=False)
    out = torch.zeros(len(rewards), dtype=torch.float64)
    out[valid] = torch.from_numpy(centred)
    _, group, sizes = torch.unique(batch.groups, return_inverse=True, return_counts=True)
    return torch.where((sizes[group] == 1) & valid, rewards, out)


def whiten(values: Tensor, on: Tensor) -> Tensor:
    """`values` [N, T] standardised over all tokens where `on` [N, T], each for itself and not a
    mean a row; float32, exactly 0 elsewhere."""
    flat = values[on].double().numpy()
    out = torch.zeros(on.shape)
    out[on] = torch.from_numpy(standardised(flat, whole_batch(flat))).float()
    return out


def over_tokens(per_row: Tensor, mask: Tensor) -> Tensor:
    """Row values [N] put on every model token of their row: float32 [N, T], 0 off the mask."""
    return torch.where(mask.bool(), per_row.float()[:, None], 0.0)


def _finite(rewards: Tensor) -> None:
    if not bool(torch.isfinite(rewards).all()):
        rule = "a valid row has a reward that is not finite; only void rows have no value"
        raise InvariantError(rule)
