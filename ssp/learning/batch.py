"""From episodes to tensors, and from one batch to mini-batches and micro-batches.

A token's mask and behaviour log-prob come from the episode's log unchanged (law 1), a void row has
reward NaN and valid False (law 2), and the split is a pure function of the lengths (law 7)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ssp.base.episode import Episode, Outcome
from ssp.base.errors import InvariantError
from ssp.learning.samples import Sample


@dataclass(frozen=True)
class Batch:
    """N rows of one role, padded on the right to T: an episode, or the continuation of one that
    lost its oldest observation.

    ids long [N, T] (0 as padding); mask bool [N, T], true on model tokens; logprobs float32 [N, T]
    of the sampling policy, 0 off the mask; rewards float32 [N], NaN for voids; valid bool [N],
    false for voids; groups long [N]; source long [N] or None: the row of the episode that each row
    continues, its own number for an episode's first row, which come first (None: no row continues
    another); token_rewards and values float [N, T] or None: what a learner adds for its estimator;
    baseline_rewards float32 [N] or None: what the greedy answer to the same question earned;
    advantages [N, T] and targets [N, T] (of the critic's values) or None: what the estimator made
    of it; settled bool [N] or None: the rows whose advantages were settled before, so that no
    estimator is asked."""

    ids: Tensor
    mask: Tensor
    logprobs: Tensor
    rewards: Tensor
    valid: Tensor
    groups: Tensor
    source: Tensor | None = None
    token_rewards: Tensor | None = None
    values: Tensor | None = None
    baseline_rewards: Tensor | None = None
    advantages: Tensor | None = None
    targets: Tensor | None = None
    settled: Tensor | None = None

    def __len__(self) -> int:
        return int(self.ids.shape[0])

    @property
    def sources(self) -> Tensor:
        """long [N]: the row that stands for each row's episode."""
        return torch.arange(len(self)) if self.source is None else self.source

    def episodes(self) -> Batch:
        """The first row of each episode, without continuations."""
        first = self.sources == torch.arange(len(self))
        picked = {name: value[first] for name, value in vars(self).items() if value is not None}
        return replace(self, **{**picked, "source": None})


def collate(
    episodes: Sequence[Episode],
    rewards: Sequence[float | None],
    groups: Sequence[Hashable],
    baselines: Sequence[float] | None = None,
    turns: Sequence[Sequence[float]] | None = None,
) -> Batch:
    """Pad `episodes` into a Batch. `rewards`: None exactly for voids; `groups`: any label, numbered
    by first appearance. Row i is episode i; continuations follow. `baselines`: see
    `Batch.baseline_rewards`. `turns`: what each turn of an episode earned (empty: only its reward
    is known), which then lies on the turn's last token. An episode with continuations, which is
    trained with one advantage, has all on the last token of its first row.

    InvariantError: unequal lengths, no rows, an outcome not known yet, a void with a value, a value
    missing, or a log that starts with a model token (nothing precedes it, so it has no
    log-prob)."""
    _check_rows(episodes, rewards, [c for c in (groups, baselines) if c is not None])
    n = len(episodes)
    # Views that have something to train; at least one, whatever the log holds.
    views = [
        episode.log.views() or [(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool))]
        for episode in episodes
    ]
    views = [[view for view in given if view[1].any()] or given[:1] for given in views]
    rows = [(i, *first) for i, (first, *_) in enumerate(views)]
    rows += [(i, *view) for i, (_, *rest) in enumerate(views) for view in rest]
    source = torch.tensor([i for i, _, _ in rows], dtype=torch.long)
    shape = len(rows), max(len(positions) for _, positions, _ in rows)
    ids, mask = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool)
    logprobs = torch.zeros(shape, dtype=torch.float32)
    for row, (i, positions, trained) in enumerate(rows):
        log, t = episodes[i].log, len(positions)
        ids[row, :t] = torch.from_numpy(np.asarray(log.ids, dtype=np.int64)[positions])
        mask[row, :t] = torch.from_numpy(trained)
        logprobs[row, :t] = torch.from_numpy(np.asarray(log.logprobs, dtype=np.float32)[positions])
    numbers: dict[Hashable, int] = {}
    numbered = [numbers.setdefault(group, len(numbers)) for group in groups]
    values = torch.tensor(
        [float("nan") if r is None else float(r) for r in rewards], dtype=torch.float32
    )
    return Batch(
        ids=ids,
        mask=mask,
        logprobs=torch.where(mask, logprobs, 0.0),
        rewards=values[source],
        valid=torch.tensor([e.outcome is not Outcome.VOID for e in episodes])[source],
        groups=torch.tensor(numbered, dtype=torch.long)[source],
        source=None if len(rows) == n else source,
        token_rewards=None if turns is None else _earned(episodes, rows, rewards, turns, shape),
        baseline_rewards=None
        if baselines is None
        else torch.tensor(list(baselines), dtype=torch.float32)[source],
    )


def _check_rows(
    episodes: Sequence[Episode],
    rewards: Sequence[float | None],
    columns: Sequence[Sequence[object]],
) -> None:
    """InvariantError unless the columns have a value for each episode, and each is settled."""
    n = len(episodes)
    if n == 0 or any(len(column) != n for column in (rewards, *columns)):
        found = f"{n} episodes, {len(rewards)} rewards, columns of {[len(column) for column in columns]}"
        raise InvariantError(f"a batch needs rows of equal count: {found}")
    for episode, reward in zip(episodes, rewards, strict=True):
        if episode.outcome is None:
            raise InvariantError(f"episode {episode.id} enters a batch before its outcome is known")
        if (episode.outcome is Outcome.VOID) != (reward is None):
            raise InvariantError(
                f"episode {episode.id} is {episode.outcome.value} but its reward is {reward}"
            )
        if len(episode.log) and bool(episode.log.mask[0]):
            raise InvariantError(f"episode {episode.id} starts with a model token")


def of_samples(episodes: Sequence[Episode], samples: Sequence[Sample]) -> Batch:
    """The batch of `episodes`, one a sample, with the credit of each sample on its tokens. As
    `collate`."""
    rewards, groups = [sample.reward for sample in samples], [sample.group for sample in samples]
    baselines = [sample.baseline for sample in samples if sample.baseline is not None]
    turns = [sample.turns for sample in samples]
    batch = collate(episodes, rewards, groups, baselines or None, turns if any(turns) else None)
    if not any(sample.credit for sample in samples):
        return batch
    advantages = torch.zeros(batch.mask.shape, dtype=torch.float32)
    for row, source in enumerate(batch.sources.tolist()):
        credit, mask = samples[source].credit, batch.mask[row]
        if len(credit) == 1:
            advantages[row, mask] = credit[0]
        elif credit:  # by turns, of an episode in one context
            log = episodes[source].log
            _, turn = np.unique(log.turns()[log.mask], return_inverse=True)
            advantages[row, mask] = torch.tensor(credit)[
                torch.from_numpy(turn).clamp(max=len(credit) - 1)
            ]
    settled = torch.tensor([bool(sample.credit) for sample in samples])[batch.sources]
    return replace(batch, advantages=advantages, settled=settled)


def _earned(
    episodes: Sequence[Episode],
    rows: Sequence[tuple[int, np.ndarray, np.ndarray]],
    rewards: Sequence[float | None],
    turns: Sequence[Sequence[float]],
    shape: tuple[int, int],
) -> Tensor:
    """float64 [N, T]: what each token earned. `rows`: the episodes' first ones, then
    continuations."""
    out, cut = torch.zeros(shape, dtype=torch.float64), {i for i, *_ in rows[len(episodes) :]}
    for i, positions, trained in rows[: len(episodes)]:
        numbers, last = episodes[i].log.turns()[positions], np.flatnonzero(trained)
        by_turn = () if i in cut else turns[i]
        for turn, earned in enumerate(by_turn or [rewards[i] or 0.0]) if len(last) else ():
            at = last[numbers[last] == turn] if by_turn else last
            out[i, (at if len(at) else last)[-1]] += earned
    return out


def lengths(mask: Tensor) -> Tensor:
    """long [N]: position after each row's last model token (0 when it has none); what follows it is
    never computed."""
    positions = torch.arange(1, mask.shape[1] + 1)
    return (
        (mask * positions).amax(dim=1)
        if mask.shape[1]
        else torch.zeros(mask.shape[0], dtype=torch.long)
    )


def micro_batches(
    row_lengths: Tensor, rows: Tensor, token_budget: int, packing: bool = False
) -> list[Tensor]:
    """Split `rows` (indices, long [K]) into index tensors of at most `token_budget` tokens each,
    padding included.

    Rows are sorted by length (ties by index), so that a micro-batch has little padding. With
    `packing` there is none: rows stay in order, so that those of one prompt stay together, in the
    fewest parts and these as equal as can be. A row longer than the budget is a micro-batch of its
    own."""
    if packing:
        return _even_parts(row_lengths[rows].tolist(), rows, token_budget)
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


def _even_parts(sizes: list[int], rows: Tensor, token_budget: int) -> list[Tensor]:
    """Consecutive parts of at most `token_budget`, the fewest, with the largest as small as so many
    allow."""

    def cut(most: int) -> list[int]:
        counts, filled = [], token_budget + 1
        for size in sizes:
            if filled + size > most:
                counts.append(0)
                filled = 0
            counts[-1] += 1
            filled += size
        return counts

    fewest, low, high = len(cut(token_budget)), 1, token_budget
    while low < high:  # the smallest bound that needs no more parts
        middle = (low + high) // 2
        low, high = (low, middle) if len(cut(middle)) <= fewest else (middle + 1, high)
    return list(rows.split(cut(high))) if sizes else []


def mini_batches(sources: Tensor, size: int) -> list[Tensor]:
    """Row indices of each optimizer step: the episodes in batch order, with their continuations, in
    equal parts of at most `size` (0: all in one)."""
    episodes = torch.unique(sources)
    count = -(-len(episodes) // size) if size else 1
    return [
        torch.nonzero(torch.isin(sources, part)).squeeze(1)
        for part in torch.tensor_split(episodes, count)
    ]
