"""Which questions a round plays, the replay pool, and the order of the targets."""

from __future__ import annotations

import json

import fakes
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssp.base.played import Game
from ssp.config.schema import GameConfig
from ssp.selfplay import targets as batches
from ssp.selfplay.targets import Batches, TargetRow, Targets
from tests.blocks import made


def games(round_: int, valid: list[bool], question: str = "q{} seat ?") -> list[Game]:
    made = [fakes.game(f"g{round_ * 10 + i}") for i in range(len(valid))]
    for i, game in enumerate(made):
        game.valid, game.question = valid[i], question.format(round_ * 10 + i)
    return made


def played(batch: Batches, round_: int, made: list[Game], rate: float = 0.5) -> list[Game]:
    chosen = batch.choose(round_, made, 1)
    for game in chosen:
        game.win_rate = rate
    batch.remember(round_, made)
    return chosen


@pytest.mark.covers("SP-05")
def test_dummy_leaves_invalid_slots_empty() -> None:
    batch = Batches(GameConfig(batch="dummy"), 3, seed=0)
    for round_ in range(3):
        made = games(round_, [True, False, True, False])
        chosen = played(batch, round_, made)
        assert [game.id for game in chosen] == [made[0].id, made[2].id]
        assert [game.chosen for game in made] == [True, False, True, False]
    assert batch.state() == []  # nobody would read it


def test_replay_refills_and_a_second_start_gets_new_ids() -> None:
    batch = Batches(GameConfig(batch="replay"), 4, seed=0)
    played(batch, 0, games(0, [True] * 4))
    first, second = (batch.choose(1, games(1, [True, False, False, False]), start) for start in (1, 2))
    assert len(first) == 4 and all(game.proposal is None and game.chosen and game.valid for game in first[1:])
    assert [g.question for g in first] == [g.question for g in second]
    assert [g.asked_by for g in first] == [None, 1, 1, 1]
    assert not {g.id for g in first[1:]} & {g.id for g in second[1:]}


def test_a_replayed_question_is_about_the_document_that_it_was_about() -> None:
    """Who may grade it, and with what it is compared, follows from that; also in a run that goes on."""
    batch, resumed = (Batches(GameConfig(batch="replay"), 2, seed=0) for _ in range(2))
    made = games(0, [True] * 2)
    made[0].source = "d7"
    played(batch, 0, made)
    resumed.restore(json.loads(json.dumps(batch.state())))
    for pool in (batch, resumed):
        assert {game.question: game.source for game in pool.choose(1, [], 1)} == {"q0 seat ?": "d7", "q1 seat ?": ""}


def test_a_replayed_question_keeps_its_place_and_gets_the_new_win_rate() -> None:
    """It is not put in again, so that popular ones do not multiply."""
    batch = Batches(GameConfig(batch="replay"), 4, seed=0)
    played(batch, 0, games(0, [True] * 3))
    chosen = batch.choose(1, games(1, [False] * 3), 1)
    for game in chosen:
        game.win_rate = 1.0 if game.question == "q1 seat ?" else None  # the others had too few scored attempts
    batch.remember(1, chosen)
    assert [(item["question"], item["win_rate"], item["asked_by"]) for item in batch.state()] == [
        ("q0 seat ?", 0.5, 1),
        ("q1 seat ?", 1.0, 1),
        ("q2 seat ?", 0.5, 1),
    ]


def test_a_question_that_is_asked_again_is_the_newest() -> None:
    batch = Batches(GameConfig(batch="replay"), 4, seed=0)
    played(batch, 0, games(0, [True] * 2))
    again = games(1, [True])
    again[0].question, again[0].target = "q0 seat ?", "t"
    played(batch, 1, again, rate=0.25)
    assert [(item["question"], item["win_rate"]) for item in batch.state()] == [("q1 seat ?", 0.5), ("q0 seat ?", 0.25)]


@pytest.mark.covers("GA-07")
def test_what_was_solved_half_of_the_time_is_replayed_most() -> None:
    """By p (1 - p) of the last rate: of 1/4 and 1/2 as 3 to 4; what all or none solved never comes again."""
    batch = Batches(GameConfig(batch="replay_learnable"), 4, seed=0)
    rates = {"q0 seat ?": 0.0, "q1 seat ?": 0.25, "q2 seat ?": 0.5, "q3 seat ?": 1.0}
    first = batch.choose(0, games(0, [True] * 4), 1)
    for game in first:
        game.win_rate = rates[game.question]
    batch.remember(0, first)
    lone = Batches(GameConfig(batch="replay_learnable"), 1, seed=0)
    lone.restore(batch.state())
    drawn = [lone.choose(round_, [], 1)[0].question for round_ in range(800)]
    share = drawn.count("q1 seat ?") / len(drawn)
    assert set(drawn) == {"q1 seat ?", "q2 seat ?"} and abs(share - 3 / 7) < 4 * (3 / 7 * 4 / 7 / 800) ** 0.5
    both = batch.choose(1, [], 1)
    assert {game.question for game in both} == set(drawn) and {game.number for game in both} == {-1, -2}
    assert batch.choose(1, [], 1, both) == []  # a further batch of the round asks nothing twice
    nobody = Batches(GameConfig(batch="replay_learnable"), 4, seed=0)
    played(nobody, 0, games(0, [True] * 2), rate=1.0)
    assert nobody.choose(1, [], 1) == []


@pytest.mark.parametrize(
    ("size", "share", "valid", "enough"), [(4, 1.0, 3, False), (4, 0.75, 3, True), (3, 0.5, 1, True)]
)
@pytest.mark.covers("SP-05")
def test_when_resampling_has_enough(size: int, share: float, valid: int, enough: bool) -> None:
    """SSP's rule: as many as int(size x share)."""
    batch = Batches(made(GameConfig, batch="resample", resample_min_valid=share), size, seed=0)
    assert batch.enough(games(0, [True] * valid + [False] * 5)) == enough
    assert (batch.extra, Batches(GameConfig(), size, seed=0).extra) == (5, 0)


@pytest.mark.covers("SP-05")
def test_reset_at_the_exact_rounds() -> None:
    batch = Batches(made(GameConfig, batch="replay_reset", replay_reset_every=3), 2, seed=0)
    sizes = []
    for round_ in range(7):
        played(batch, round_, games(round_, [True, True]))
        sizes.append(len(batch.state()))
    assert sizes == [2, 4, 0, 2, 4, 0, 2]


def test_the_pool_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "REPLAY_SIZE", 5)
    batch = Batches(GameConfig(batch="replay"), 4, seed=0)
    for round_ in range(4):
        played(batch, round_, games(round_, [True] * 3))
    assert [item["question"] for item in batch.state()] == [f"q{i} seat ?" for i in (21, 22, 30, 31, 32)]


@settings(max_examples=40, deadline=None)
@given(
    rounds=st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=5), min_size=1, max_size=8),
    size=st.integers(1, 4),
)
def test_no_duplicates_never_too_many_and_state_is_all(rounds: list[list[tuple[bool, int]]], size: int) -> None:
    cfg = made(GameConfig, batch="replay_reset", replay_reset_every=3)
    batch = Batches(cfg, size, seed=3)
    for round_, proposals in enumerate(rounds):
        twin = Batches(cfg, size, seed=3)
        twin.restore(json.loads(json.dumps(batch.state())))
        mine, same = (games(round_, [valid for valid, _ in proposals]) for _ in range(2))
        for game, copy, (_, name) in zip(mine, same, proposals, strict=True):
            game.question = copy.question = f"q{name} seat ?"
        chosen, copies = played(batch, round_, mine), played(twin, round_, same)
        assert [(g.id, g.question) for g in chosen] == [(g.id, g.question) for g in copies]
        assert batch.state() == twin.state()
        assert len(chosen) <= size and len({g.id for g in chosen}) == len(chosen)
        refills = [g.question for g in chosen if g.proposal is None]
        assert len(set(refills)) == len(refills)
        assert not set(refills) & {g.question for g in chosen if g.proposal is not None}


def items(n: int) -> list[TargetRow]:
    return [TargetRow(f"t{i}") for i in range(n)]


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 12), batch=st.integers(1, 9), seed=st.integers(0, 3))
def test_every_epoch_is_a_permutation(n: int, batch: int, seed: int) -> None:
    targets = Targets(items(n), batch, seed)
    drawn = [game for round_ in range(3 * n) for game in targets.take(round_, 1)]
    assert [game.number for game in drawn] == list(range(3 * n * batch))
    for epoch in range(3):
        assert sorted(game.target for game in drawn[epoch * n : (epoch + 1) * n]) == sorted(f"t{i}" for i in range(n))
    again = Targets(items(n), batch, seed)
    again.restore({"next": 2, "open": []})
    third = again.take(2, 7)
    assert [g.target for g in third] == [g.target for g in drawn[2 * batch : 3 * batch]]
    assert not {g.id for g in third} & {g.id for g in drawn}


def test_a_row_with_a_question_is_a_valid_game_with_all_its_answers() -> None:
    (game,) = Targets([TargetRow("a", "who ?", ("a", "b"))], 1, 0).take(0, 1)
    assert (game.target, game.question, game.golds, game.valid, game.proposal) == ("a", "who ?", ("a", "b"), True, None)
    (asked,) = Targets([TargetRow("a", hints={"searches": "2"})], 1, 0).take(0, 1)
    assert (asked.valid, asked.golds, asked.hints) == (False, (), {"searches": "2"})


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_batch_is_lost_or_handed_out_twice_whenever_the_run_goes_back(data: st.DataObject) -> None:
    """Overlapping rounds take extra batches in any order, and the run goes back to a checkpoint now and then: what the
    checkpoint's rounds played and what is played after it are all batches, each once."""
    targets, played, done = Targets(items(7), 2, 0), {}, 0
    lineage: list[list[int]] = []
    for _ in range(data.draw(st.integers(1, 12))):
        act = data.draw(st.sampled_from(["take", "finish", "back"]))
        if act == "take":
            round_ = done + data.draw(st.integers(0, 2))
            first = targets.take(round_, 1)[0].number
            played.setdefault(round_, []).append(first // 2)
        elif act == "finish":
            state = json.loads(json.dumps(targets.state(done)))
            lineage.append(played.pop(done, []))
            done += 1
        elif done:
            targets.restore(state)
            played.clear()
    rest = [*lineage, *played.values()]
    handed = sorted(batch for batches in rest for batch in batches)
    left = {targets.take(99, 1)[0].number // 2 for _ in range(5)}
    assert len(set(handed)) == len(handed) and not left & set(handed)
    assert set(range(max([*handed, *left]))) <= {*handed, *left}
