"""Alarms for a collapse of diversity: raised soon after a planted one, not on streams that stay as they are. Curricula are
simulated: a proposer draws questions as it always did, or from some round on a few only."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from ssp.base.episode import PROPOSED
from ssp.selfplay.curriculum.figures import AskedQuestion, Curriculum, DuplicateAlarm

LATER = 24


@dataclass(frozen=True)
class Stream:
    """`batch` targets a round, in random order of all `targets`; a share `valid` is accepted; a target has `pool` squared
    questions. From round `collapse` on, all questions are of `left` ones, about as many targets; from round `LATER` on a share
    `later` is accepted, if there is one."""

    batch: int = 32
    valid: float = 0.6
    pool: int = 6
    targets: int = 330
    collapse: int = 0
    left: int = 3
    later: float = 0.0

    def records(self, rng: random.Random, step: int, order: list[int]) -> list[AskedQuestion]:
        """Those of one round; `order` is what is left of the data."""
        found = []
        for at in range(self.batch):
            if not order:
                order += rng.sample(range(self.targets), self.targets)
            target = order.pop()
            if rng.random() > (self.later if self.later and step >= LATER else self.valid):
                continue
            question = f"entity{target} relation{rng.randrange(self.pool)} relation{rng.randrange(self.pool)} ?"
            if self.collapse and step >= self.collapse:
                target = rng.randrange(self.left)
                question = f"entity{target} relation0 relation0 ?"
            found.append(AskedQuestion(f"g{step}x{at}", question, f"t{target}", PROPOSED, 2, rng.random(), 2.0))
        return found


def played(stream: Stream, seed: int, rounds: int, window: int = 8) -> list[int]:
    rng, order = random.Random(seed), list[int]()
    curriculum, found = Curriculum(window), []
    for step in range(1, rounds + 1):
        curriculum.round(step, stream.records(rng, step, order))
        found += [step] if curriculum.said else []
    return found


WITHIN = 3
"""Rounds, the collapsed one counted, with 16 accepted questions a round and more (docs/curriculum.md)."""
STREAMS = {
    "quickstart": Stream(96),
    "small": Stream(32),
    "wiki": Stream(64, 0.8, 40, 50_000),
    "few": Stream(8, 0.4, 4, 5000),
}


@pytest.mark.parametrize("name", ["quickstart", "small", "wiki"])
def test_a_planted_collapse_is_told_within_three_rounds(name: str) -> None:
    for seed in range(3):
        found = played(replace(STREAMS[name], collapse=24), seed, 24 + WITHIN)
        assert found and 24 <= found[0] < 24 + WITHIN, (seed, found)


def test_a_collapse_with_three_questions_a_round_is_told_within_eight_rounds() -> None:
    for seed in range(5):
        found = played(replace(STREAMS["few"], collapse=24), seed, 31)
        assert found and 24 <= found[0] <= 31, (seed, found)


@pytest.mark.parametrize("pool", [2, 3])
def test_a_proposer_that_is_accepted_more_often_raises_none(pool: int) -> None:
    """In a small world: twice as many questions in a window of rounds repeat each other more, and are as different."""
    rising = Stream(96, 0.35, pool, later=0.7)
    assert [seed for seed in range(8) if played(rising, seed, 60)] == []


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", list(STREAMS))
def test_false_alarms_of_two_hundred_runs(name: str) -> None:
    """200 rounds each. At most one run in a hundred: docs/curriculum.md states what was found."""
    found = [seed for seed in range(200) if played(STREAMS[name], seed, 200)]
    print(f"{name}: {len(found)} of 200 runs of 200 rounds with a false alarm")
    assert len(found) <= 2, found


def watched(values: list[float], questions: int = 50, window: int = 4) -> list[int]:
    """Places of the observations with which an alarm begins."""
    alarm = DuplicateAlarm(window)
    return [at for at, value in enumerate(values) if alarm.see(at, value, questions)]


def test_one_odd_round_is_no_alarm_and_two_are() -> None:
    calm = [0.1] * 12
    assert watched([*calm, 1.0, *calm]) == []
    assert watched([*calm, 1.0, 1.0, *calm]) == [13]


def test_before_the_baseline_is_whole_nothing_is_told() -> None:
    assert watched([0.0] * 4 + [1.0] * 100) == []  # a run that was so from its beginning
    assert watched([0.0] * 8 + [1.0] * 100) == [9]


def test_it_is_told_once_and_ends_when_all_is_well_again() -> None:
    assert watched([0.1] * 8 + [0.9] * 50) == [9]
    assert watched([0.1] * 8 + [0.9, 0.9] + [0.35, 0.27] * 20) == [9], "at the edge of what begins one"
    assert watched([0.1] * 8 + [0.9] * 50 + [0.1] * 3 + [0.9] * 3) == [9, 62]


def test_an_alarm_names_numbers_and_next_step() -> None:
    alarm = DuplicateAlarm(3)
    said = [text for step in range(1, 12) if (text := alarm.see(step, 0.1 if step < 8 else 0.9, 40))]
    (text,) = said
    assert text.startswith("curriculum alarm: near_duplicates at step 9: 0.90, and 0.10 at the run's beginning")
    assert "Next: read the newest questions" in text and alarm.lasting
