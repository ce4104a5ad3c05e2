"""Collation keeps the log as it is; micro-batches cover every row once within the budget."""

from __future__ import annotations

import math

import pytest
import torch

from ssp.base.episode import Episode, Outcome
from ssp.base.errors import InvariantError
from ssp.base.tokenlog import Kind
from ssp.learning.batch import collate, lengths, micro_batches


@pytest.mark.covers("SR-02")
def test_collate_copies_the_log_and_pads_right(make_episodes):
    episodes = make_episodes(6)
    nq, hotpot = ("nq", 3), ("hotpotqa", 3)  # rows of one number in two data sets
    batch = collate(episodes, [0.5] * 6, [nq, nq, hotpot, hotpot, "c", nq])
    assert batch.groups.tolist() == [0, 0, 1, 1, 2, 0] and len(batch) == 6
    for i, episode in enumerate(episodes):
        t = len(episode.log)
        assert batch.ids[i, :t].tolist() == episode.log.ids
        assert batch.mask[i, :t].tolist() == episode.log.mask.tolist()
        assert batch.logprobs[i, :t].tolist() == episode.log.logprobs
        assert not batch.mask[i, t:].any()
    assert (batch.logprobs[~batch.mask] == 0).all()


def test_a_void_has_no_value(make_episodes):
    episodes = make_episodes(2)
    episodes[1].void("retriever_down")
    batch = collate(episodes, [1.0, None], [0, 0])
    assert batch.valid.tolist() == [True, False] and math.isnan(batch.rewards[1])
    with pytest.raises(InvariantError, match="void but its reward"):
        collate(episodes, [1.0, 0.0], [0, 0])


def test_collate_refuses_what_a_law_forbids(make_episodes):
    episodes = make_episodes(2)
    with pytest.raises(InvariantError, match="equal count"):
        collate(episodes, [1.0], [0, 0])
    with pytest.raises(InvariantError, match="equal count"):
        collate([], [], [])
    with pytest.raises(InvariantError, match="scored but its reward"):
        collate(episodes, [1.0, None], [0, 0])
    with pytest.raises(InvariantError, match="outcome"):
        collate([Episode("x", "g", "solver", 0)], [1.0], [0])
    headless = Episode("y", "g", "solver", 0, outcome=Outcome.SCORED)
    headless.log.append_model([1], [-0.5], 0)
    headless.log.append(Kind.TEMPLATE, [2])
    with pytest.raises(InvariantError, match="starts with a model token"):
        collate([headless], [1.0], [0])


def test_lengths_end_at_the_last_model_token():
    mask = torch.tensor([[False, True, False, True, False], [False] * 5, [False, False, False, False, True]])
    assert lengths(mask).tolist() == [4, 0, 5]


@pytest.mark.parametrize("budget", [1, 30, 100, 10_000])
def test_micro_batches_partition_the_rows_within_the_budget(budget):
    sizes = torch.tensor([7, 30, 12, 12, 3, 25, 9, 12])
    rows = torch.tensor([0, 1, 2, 3, 5, 6, 7])
    parts = micro_batches(sizes, rows, budget)
    assert sorted(torch.cat(parts).tolist()) == rows.tolist()
    for part in parts:
        assert len(part) == 1 or len(part) * int(sizes[part].max()) <= budget
    flat = torch.cat(parts)
    assert sizes[flat].tolist() == sorted(sizes[rows].tolist())
    assert flat[sizes[flat] == 12].tolist() == [2, 3, 7]  # ties by index: the split is a function of the lengths
    assert micro_batches(sizes, rows[:0], budget) == []
