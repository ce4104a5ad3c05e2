"""From episodes to tensors, and from one batch to mini-batches and micro-batches.

A token's mask and behaviour log-prob come from the episode's log unchanged (law 1), a void row has
reward NaN and valid False (law 2), and the split is a pure function of the rows (law 7)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ssp.base.episode import Episode, Outcome
from ssp.base.errors import InvariantError
from ssp.learning.prefixes import shared
from ssp.learning.scored import Scored, numbered

SEEN = 4
"""Attention lays the keys and values of what rows share before each of them, so that their memory
goes by the rows' whole lengths."""


@dataclass(frozen=True)
class Batch:
    """N rows of one role, padded on the right to T. A row is an episode, or the continuation of one
    that lost its oldest observation. Episodes' first rows come first.

    `ids` long [N, T], 0 as padding. `mask` bool [N, T], true on model tokens. `logprobs` float32
    [N, T]: behaviour log-probs, 0 off the mask. `rewards` float32 [N], NaN for voids. `valid` bool
    [N], false for voids. `groups` long [N]. `source` long [N]: the first row of each row's episode;
    None where no row continues another.

    The rest may be None. `token_rewards`, `values` float [N, T]: what an estimator reads beside
    rewards. `baseline_rewards` float32 [N]: what the greedy answer to the same question earned.
    `advantages`, and the critic's `targets`, [N, T]: what the estimator made of it. `settled` bool
    [N]: rows whose advantages were settled before, so that no estimator is asked."""

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
        return len(self.ids)

    @property
    def sources(self) -> Tensor:
        """long [N]: the row that stands for each row's episode."""
        return torch.arange(len(self)) if self.source is None else self.source

    def episodes(self) -> Batch:
        """The first row of each episode, without continuations."""
        first = self.sources == torch.arange(len(self))
        picked = {name: value[first] for name, value in vars(self).items() if value is not None}
        return replace(self, **{**picked, "source": None})


class _Row(NamedTuple):
    """What a row shows: the episode's number, the positions of its log, and which are trained."""

    episode: int
    positions: np.ndarray
    trained: np.ndarray


def collate(
    episodes: Sequence[Episode],
    rewards: Sequence[float | None],
    groups: Sequence[Hashable],
    baselines: Sequence[float] | None = None,
    turns: Sequence[Sequence[float]] | None = None,
) -> Batch:
    """Pad `episodes` into a Batch; row i is episode i, continuations follow.

    `rewards`: None exactly for voids. `groups`: any label, numbered by first appearance.
    `baselines`: see `Batch.baseline_rewards`. `turns`: what each turn of an episode earned, which
    then lies on the turn's last token (empty: only its reward is known). An episode with
    continuations is trained with one advantage, so it has all on the last token of its first row.

    InvariantError: unequal lengths, no rows, an outcome not known yet, a void with a value, a value
    missing, or a log that starts with a model token (nothing precedes it, so it has no
    log-prob)."""
    _check_rows(episodes, rewards, [c for c in (groups, baselines) if c is not None])
    firsts, continuations = _rows(episodes)
    rows = firsts + continuations
    shape = len(rows), max(len(row.positions) for row in rows)
    ids = torch.zeros(shape, dtype=torch.long)
    mask = torch.zeros(shape, dtype=torch.bool)
    logprobs = torch.zeros(shape, dtype=torch.float32)
    for place, (episode, positions, trained) in enumerate(rows):
        log = episodes[episode].log
        length = len(positions)
        tokens = np.asarray(log.ids, dtype=np.int64)
        sampled = np.asarray(log.logprobs, dtype=np.float32)
        ids[place, :length] = torch.from_numpy(tokens[positions])
        mask[place, :length] = torch.from_numpy(trained)
        logprobs[place, :length] = torch.from_numpy(sampled[positions])

    earned = torch.tensor([math.nan if reward is None else reward for reward in rewards]).float()
    valid = torch.tensor([episode.outcome is not Outcome.VOID for episode in episodes])
    group_numbers = torch.from_numpy(numbered(groups))
    source = torch.tensor([row.episode for row in rows])
    batch = Batch(
        ids=ids,
        mask=mask,
        logprobs=torch.where(mask, logprobs, 0.0),
        rewards=earned[source],
        valid=valid[source],
        groups=group_numbers[source],
        source=source if continuations else None,
    )
    if baselines is not None:
        greedy = torch.tensor(baselines, dtype=torch.float32)
        batch = replace(batch, baseline_rewards=greedy[source])
    if turns is not None:
        cut = {row.episode for row in continuations}
        known = [() if episode in cut else own for episode, own in enumerate(turns)]
        batch = replace(batch, token_rewards=_earned(episodes, firsts, rewards, known, shape))
    return batch


def _check_rows(
    episodes: Sequence[Episode],
    rewards: Sequence[float | None],
    columns: Sequence[Sequence[object]],
) -> None:
    """InvariantError unless the columns have a value for each episode, and each is settled."""
    n = len(episodes)
    sizes = [len(column) for column in (rewards, *columns)]
    if n == 0 or set(sizes) != {n}:
        counts = f"{n} episodes, {sizes[0]} rewards, columns of {sizes[1:]}"
        raise InvariantError(f"a batch needs rows of equal count: {counts}")
    for episode, reward in zip(episodes, rewards, strict=True):
        if episode.outcome is None:
            raise InvariantError(f"episode {episode.id} enters a batch before its outcome is known")
        if (episode.outcome is Outcome.VOID) != (reward is None):
            outcome = episode.outcome.value
            raise InvariantError(f"episode {episode.id} is {outcome} but its reward is {reward}")
        if len(episode.log) and episode.log.mask[0]:
            raise InvariantError(f"episode {episode.id} starts with a model token")


def _rows(episodes: Sequence[Episode]) -> tuple[list[_Row], list[_Row]]:
    """The first row of each episode, and the continuations: contexts that have something to train.
    An episode has a row, whatever its log holds."""
    firsts = []
    continuations = []
    for number, episode in enumerate(episodes):
        views = episode.log.views() or [(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool))]
        taught = [view for view in views if view[1].any()] or views[:1]
        first, *rest = [_Row(number, *view) for view in taught]
        firsts.append(first)
        continuations += rest
    return firsts, continuations


def _earned(
    episodes: Sequence[Episode],
    rows: Sequence[_Row],
    rewards: Sequence[float | None],
    turns: Sequence[Sequence[float]],
    shape: tuple[int, int],
) -> Tensor:
    """float64 [N, T]: what each token earned. `rows`: the first one of each episode."""
    out = torch.zeros(shape, dtype=torch.float64)
    for number, positions, trained in rows:
        tokens = np.flatnonzero(trained)
        if not len(tokens):
            continue
        if not turns[number]:
            out[number, tokens[-1]] += rewards[number] or 0.0
        of_tokens = episodes[number].log.turns()[positions][tokens]
        _, turn_of = np.unique(of_tokens, return_inverse=True)  # trained turns alone earn
        for turn, earned in enumerate(turns[number]):
            of_turn = tokens[turn_of == turn]
            last = of_turn[-1] if len(of_turn) else tokens[-1]
            out[number, last] += earned
    return out


def of_samples(episodes: Sequence[Episode], samples: Sequence[Scored]) -> Batch:
    """The batch of `episodes`, one a sample, with the credit of each sample on its tokens. As
    `collate`."""
    rewards = [sample.reward for sample in samples]
    groups = [sample.group for sample in samples]
    baselines = [sample.baseline for sample in samples if sample.baseline is not None]
    turns = [sample.turns for sample in samples]
    batch = collate(episodes, rewards, groups, baselines or None, turns if any(turns) else None)
    if not any(sample.credit for sample in samples):
        return batch
    advantages = torch.zeros(batch.mask.shape)
    for row, source in enumerate(batch.sources.tolist()):
        credit = samples[source].credit
        mask = batch.mask[row]
        if len(credit) == 1:
            advantages[row, mask] = credit[0]
        elif credit:  # by turns, of an episode in one context
            log = episodes[source].log
            _, turn = np.unique(log.turns()[log.mask], return_inverse=True)
            places = torch.from_numpy(turn).clamp(max=len(credit) - 1)
            advantages[row, mask] = torch.tensor(credit)[places]
    settled = torch.tensor([bool(sample.credit) for sample in samples])
    return replace(batch, advantages=advantages, settled=settled[batch.sources])


def lengths(mask: Tensor) -> Tensor:
    """long [N]: position after each row's last model token (0 when it has none); what follows it is
    never computed."""
    if not mask.shape[1]:
        return torch.zeros(len(mask), dtype=torch.long)
    return (mask * torch.arange(1, mask.shape[1] + 1)).amax(dim=1)


def micro_batches(
    row_lengths: Tensor, rows: Tensor, token_budget: int, ids: Tensor | None = None
) -> list[Tensor]:
    """Split `rows` (indices, long [K]) into index tensors of at most `token_budget` tokens each,
    padding included.

    Rows are sorted by length (ties by index), so that a micro-batch has little padding. Where rows
    are packed (`ids` [N, T]: their tokens) there is none: those that begin alike stand together and
    what they share counts once, in the fewest parts and these as equal as can be. There the whole
    rows of a part have at most `SEEN` budgets. A row longer than the budget is a micro-batch of its
    own."""
    if ids is not None:
        alike = shared(ids[rows], row_lengths[rows])
        order = rows[alike.rows]
        return _even_parts(row_lengths[order].tolist(), alike.common, order, token_budget)
    by_length = torch.sort(row_lengths[rows], stable=True).indices
    order = rows[by_length]
    out = []
    start = 0
    for end, length in enumerate(row_lengths[order].tolist()):
        if end > start and (end + 1 - start) * length > token_budget:
            out.append(order[start:end])
            start = end
    if len(order):
        out.append(order[start:])
    return out


def _even_parts(
    sizes: Sequence[int], common: Sequence[int], rows: Tensor, token_budget: int
) -> list[Tensor]:
    """Consecutive parts of at most `token_budget`, the fewest, with the largest as small as so many
    allow. `common`: tokens of a row that the one before it in the same part has too."""

    def cut(most: int) -> list[int]:
        """How many rows are in each part of at most `most` tokens."""
        counts = []
        filled = token_budget + 1
        whole = 0
        for size, same in zip(sizes, common, strict=True):
            if filled + size - same > most or whole + size > SEEN * token_budget:
                counts.append(0)
                filled = same
                whole = 0
            counts[-1] += 1
            filled += size - same
            whole += size
        return counts

    if not sizes:
        return []
    fewest = len(cut(token_budget))
    low = 1
    high = token_budget
    while low < high:  # the smallest bound that needs no more parts
        middle = (low + high) // 2
        if len(cut(middle)) <= fewest:
            high = middle
        else:
            low = middle + 1
    return list(rows.split(cut(high)))


def mini_batches(sources: Tensor, size: int) -> list[Tensor]:
    """Row indices of each optimizer step: the episodes in batch order, with their continuations, in
    equal parts of at most `size` (0: all in one)."""
    episodes = torch.unique(sources)
    count = -(-len(episodes) // size) if size else 1
    parts = torch.tensor_split(episodes, count)
    return [torch.isin(sources, part).nonzero().squeeze(1) for part in parts]
