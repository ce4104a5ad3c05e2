"""Collation keeps the log as it is; micro-batches cover every row once within the budget."""

from __future__ import annotations

import math

import pytest
import torch

from ssp.base.episode import Episode, Outcome
from ssp.base.errors import Fault, InvariantError
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
    episodes[1].void(Fault("retriever_down"))
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


def in_turns(outcome=Outcome.SCORED):
    """Ids 10 (prompt); turn 0: 1, 2; 11 (observation); turn 1: 3, of which 12 was recalled, 4; 13; turn 2: 5."""
    episode = Episode("e", "g", "solver", 0, outcome=outcome)
    for kind, ids in ((Kind.PROMPT, [10]), (None, [1, 2]), (Kind.OBSERVATION, [11]), (None, [3, 12, 4])):
        episode.log.append(kind, ids) if kind is not None else episode.log.append_model(ids, [-0.1] * len(ids), 0)
    episode.log.recall(5, 6)
    episode.log.append(Kind.TEMPLATE, [13])
    episode.log.append_model([5], [-0.1], 0)
    return episode


def test_what_each_turn_earned_lies_on_its_last_token():
    """A recalled token is no end of a turn; an episode of which only the sum is known has it at its end; a void has none."""
    assert in_turns().log.turns().tolist() == [-1, 0, 0, 0, 1, 1, 1, 1, 2]
    void = in_turns(Outcome.VOID)
    batch = collate([in_turns(), in_turns(), void], [1.75, 0.5, None], [0, 0, 0], turns=[(0.5, 0.25, 1.0), (), ()])
    assert batch.token_rewards.tolist()[:2] == [[0, 0, 0.5, 0, 0, 0, 0.25, 0, 1.0], [0] * 8 + [0.5]]
    assert not batch.token_rewards[2].any() and collate([in_turns()], [1.0], [0]).token_rewards is None


def test_of_an_episode_in_two_contexts_the_first_row_ends_with_all_that_it_earned():
    """Its rows share one advantage, that of the first row: by turns a later context would get the first turn's."""
    episode = in_turns()
    episode.log.restart()
    episode.log.append(Kind.OBSERVATION, [14])
    episode.log.append_model([6], [-0.1], 0)
    batch = collate([episode, in_turns()], [2.0, 1.0], [0, 0], turns=[(0.0, 0.5, 0.0, 1.5), ()])
    assert batch.token_rewards.shape == batch.mask.shape == (3, 9)
    assert batch.token_rewards[0].tolist() == [0, 0, 0, 0, 0, 0, 0, 0, 2.0] and not batch.token_rewards[2].any()


def test_what_a_turn_that_is_not_trained_earned_is_added_to_the_episodes_end():
    """Turn 1 was recalled as a whole, so none of its tokens is trained, and turn 2 has a pay of its own."""
    episode = in_turns()
    episode.log.recall(4, 7)
    batch = collate([episode], [1.75], [0], turns=[(0.5, 0.25, 1.0)])
    assert batch.token_rewards.tolist() == [[0, 0, 0.5, 0, 0, 0, 0, 0, 1.25]]


def test_what_trained_turns_earned_is_theirs_behind_one_that_is_not_trained():
    """Turn 0 was recalled as a whole: settling tells what the other two earned."""
    episode = in_turns()
    episode.log.recall(1, 3)
    batch = collate([episode], [0.75], [0], turns=[(0.25, 0.5)])
    assert batch.token_rewards.tolist() == [[0, 0, 0, 0, 0, 0, 0.25, 0, 0.5]]


def test_an_episode_without_a_token_to_train_is_a_row_that_earns_nothing():
    """All of it was recalled, or it wrote nothing; its reward enters the batch all the same."""
    recalled, silent = in_turns(), Episode("s", "g", "solver", 1, outcome=Outcome.SCORED)
    recalled.log.recall(0, len(recalled.log))
    silent.log.append(Kind.PROMPT, [10, 11])
    batch = collate([recalled, silent, in_turns()], [1.0, 0.5, 0.0], [0, 0, 0], turns=[(1.0, 0.0, 0.0), (), ()])
    assert batch.rewards.tolist() == [1.0, 0.5, 0.0] and batch.source is None
    assert batch.mask.sum(dim=1).tolist() == [0, 0, 5] and not batch.token_rewards.any()


def test_a_context_without_a_token_to_train_is_no_row():
    """Nor is it the one that stands for its episode."""
    episode = in_turns()
    episode.log.recall(0, len(episode.log))
    episode.log.restart()
    episode.log.append(Kind.OBSERVATION, [14])
    episode.log.append_model([6], [-0.1], 0)
    batch = collate([episode], [1.0], [0], turns=[(0.0, 0.0, 0.0, 1.0)])
    assert batch.source is None and batch.mask.tolist() == [[False, True]]
    assert batch.ids.tolist() == [[14, 6]] and batch.token_rewards.tolist() == [[0.0, 1.0]]


def fewest_parts_of(sizes, most):
    """How many consecutive parts of at most `most` there must be."""
    parts, filled = 1, 0
    for size in sizes:
        if filled + size > most:
            parts, filled = parts + 1, 0
        filled += size
    return parts


@pytest.mark.parametrize("seed", range(12))
def test_the_largest_packed_part_is_as_small_as_so_few_parts_allow(seed):
    """Against every bound that could be; the first row may be as large as the budget, or one token long."""
    drawn = torch.randint(1, 20, (9,), generator=torch.Generator().manual_seed(seed))
    ids = torch.arange(9 * 20).view(9, 20)  # no two rows begin alike
    for budget in (20, 31, 60, 400):
        parts = micro_batches(drawn, torch.arange(9), budget, ids)
        totals = [int(drawn[part].sum()) for part in parts]
        assert torch.cat(parts).tolist() == list(range(9)) and max(totals) <= budget
        sizes = drawn.tolist()
        assert len(parts) == fewest_parts_of(sizes, budget)
        bounds = range(max(sizes), budget + 1)
        assert max(totals) == next(most for most in bounds if fewest_parts_of(sizes, most) == len(parts))
    one = torch.tensor([1])
    assert [part.tolist() for part in micro_batches(one, torch.arange(1), 5, ids)] == [[0]]
