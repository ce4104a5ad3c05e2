"""From episodes to tensors, and from one batch to micro-batches.

Owns padding (right, id 0), the group numbering, and the order and size of micro-batches.
Promises that a token's mask, behaviour log-prob and version come from the episode's log unchanged (law 1), that a void
row has reward NaN and valid False (law 2), and that the split is a pure function of the lengths (law 7).
Refuses to judge rewards or to drop rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ssp.episode import Episode, Outcome
from ssp.errors import InvariantError


@dataclass(frozen=True)
class Batch:
    """N episodes of one role, padded to T.

    ids long [N, T] (0 as padding); mask bool [N, T], true on model tokens; logprobs float32 [N, T] of the sampling
    policy, 0 off the mask; rewards float32 [N], NaN for voids; valid bool [N], false for voids; groups long [N];
    versions long [N, T], -1 off the mask; graders long [N] or None: the version that graded each row, for baselines by
    version (law 4).
    """

    ids: Tensor
    mask: Tensor
    logprobs: Tensor
    rewards: Tensor
    valid: Tensor
    groups: Tensor
    versions: Tensor
    graders: Tensor | None = None

    def __len__(self) -> int:
        return int(self.ids.shape[0])


def collate(
    episodes: Sequence[Episode],
    rewards: Sequence[float | None],
    groups: Sequence[Hashable],
    graders: Sequence[int] | None = None,
) -> Batch:
    """Pad `episodes` into a Batch. `rewards`: None exactly for voids; `groups`: any label, numbered by first
    appearance.

    InvariantError: unequal lengths, no rows, an outcome not known yet, a void with a value, a value missing, or a log
    that starts with a model token (nothing precedes it, so it has no log-prob).
    """
    n = len(episodes)
    if n == 0 or len(rewards) != n or len(groups) != n or (graders is not None and len(graders) != n):
        raise InvariantError(
            f"a batch needs rows of equal count: {n} episodes, {len(rewards)} rewards, {len(groups)} groups"
        )
    for episode, reward in zip(episodes, rewards, strict=True):
        _check(episode, reward)
    length = max(len(e.log) for e in episodes)
    ids = torch.zeros((n, length), dtype=torch.long)
    mask = torch.zeros((n, length), dtype=torch.bool)
    logprobs = torch.zeros((n, length), dtype=torch.float32)
    versions = torch.full((n, length), -1, dtype=torch.long)
    for i, episode in enumerate(episodes):
        log, t = episode.log, len(episode.log)
        ids[i, :t] = torch.tensor(log.ids, dtype=torch.long)
        mask[i, :t] = torch.from_numpy(log.mask)
        logprobs[i, :t] = torch.tensor(log.logprobs, dtype=torch.float32)
        versions[i, :t] = torch.tensor(log.versions, dtype=torch.long)
    numbers: dict[Hashable, int] = {}
    return Batch(
        ids=ids,
        mask=mask,
        logprobs=logprobs,
        rewards=torch.tensor([float("nan") if r is None else float(r) for r in rewards], dtype=torch.float32),
        valid=torch.tensor([e.outcome is not Outcome.VOID for e in episodes]),
        groups=torch.tensor([numbers.setdefault(g, len(numbers)) for g in groups], dtype=torch.long),
        versions=versions,
        graders=None if graders is None else torch.tensor(list(graders), dtype=torch.long),
    )


def _check(episode: Episode, reward: float | None) -> None:
    if episode.outcome is None:
        raise InvariantError(f"episode {episode.id} enters a batch before its outcome is known")
    if (episode.outcome is Outcome.VOID) != (reward is None):
        raise InvariantError(f"episode {episode.id} is {episode.outcome.value} but its reward is {reward}")
    if len(episode.log) and bool(episode.log.mask[0]):
        raise InvariantError(f"episode {episode.id} starts with a model token")


def lengths(mask: Tensor) -> Tensor:
    """long [N]: position after each row's last model token (0 when it has none).

    What follows the last model token cannot change a log-prob under causal attention, so it is never computed.
    """
    positions = torch.arange(1, mask.shape[1] + 1)
    return (mask * positions).amax(dim=1) if mask.shape[1] else torch.zeros(mask.shape[0], dtype=torch.long)


def micro_batches(row_lengths: Tensor, rows: Tensor, token_budget: int) -> list[Tensor]:
    """Split `rows` (indices, long [K]) into index tensors of at most `token_budget` padded tokens each.

    Rows are sorted by length (ties by index), so that a micro-batch has little padding; a row longer than the budget
    is a micro-batch of its own.
    """
    order = rows[torch.sort(row_lengths[rows], stable=True).indices]
    out: list[Tensor] = []
    start = 0
    for end, length in enumerate(row_lengths[order].tolist()):
        if end > start and (end + 1 - start) * length > token_budget:
            out.append(order[start:end])
            start = end
    if len(order):
        out.append(order[start:])
    return out
