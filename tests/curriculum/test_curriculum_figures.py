"""Each figure of the curriculum by hand, and the fast near-duplicates and half-lives against their definitions."""

from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction

import pytest

from ssp.bank.groups import NEAR, Recent, features, similarity
from ssp.curriculum.answers import CLASSES, class_of
from ssp.curriculum.figures import BANDS, EARLIER, Curriculum, Setting, Window, band
from ssp.curriculum.halflife import HalfLife
from ssp.curriculum.records import GIVEN, PROPOSED, REPLAYED, Asked


def asked(at: int, rate: float | None, kind: str = PROPOSED, target: str = "", **more: object) -> Asked:
    return Asked(f"g{at}", f"what is thing {at} of place{at} ?", target or f"t{at}", kind, rate=rate, **more)  # type: ignore[arg-type]


def named(values: dict[str, float]) -> dict[str, float]:
    return {name.removeprefix("curriculum/"): value for name, value in values.items()}


def test_how_hard_the_questions_of_a_round_were() -> None:
    rates = [0.0, 0.0, 0.25, 1 / 6, 0.5, 0.51, 0.75, 5 / 6, 1.0, None]
    found = named(Curriculum(Setting(), 4).round(1, [asked(at, rate) for at, rate in enumerate(rates)]))
    shares = [found[f"solved_{name}"] * 9 for name in BANDS]
    assert shares == pytest.approx([2, 2, 1, 2, 1, 1])
    assert found["mixed"] == pytest.approx(6 / 9)
    known = [rate for rate in rates if rate is not None]
    assert found["learnability"] == pytest.approx(sum(4 * p * (1 - p) for p in known) / 9)
    assert found["reasked"] == 0.0 and "half_life" not in found


@pytest.mark.parametrize("n", range(1, 13))
def test_the_bands_are_half_open(n: int) -> None:
    for k in range(n + 1):
        quarter = 0 if k == 0 else 5 if k == n else next(q for q in (1, 2, 3, 4) if 4 * k <= q * n)
        assert band(k / n) == BANDS[quarter], (k, n)


def test_searches_hops_targets_and_documents() -> None:
    curriculum = Curriculum(Setting(targets=10, documents=20, hops=lambda question: len(question.split())), 2)
    first = [
        asked(1, 0.5, target="a", searches=2, documents=("d1", "d2"), tried=3.0),
        asked(2, None, target="a", searches=4, documents=("d1",)),
    ]
    found = named(curriculum.round(1, first))
    assert (found["hops"], found["searches"], found["solver_searches"]) == (7.0, 3.0, 3.0)
    assert (found["targets"], found["documents"]) == (1, 2)
    assert found["coverage"] == pytest.approx((1 / 2 + 2 / 3) / 2)
    for step in (2, 3):
        found = named(curriculum.round(step, [asked(3, 0.5, target="b", searches=1, documents=("d3",))]))
    assert (found["coverage_targets"], found["coverage_targets_window"]) == (2 / 10, 1 / 10)
    assert (found["coverage_documents"], found["coverage_documents_window"]) == (3 / 20, 1 / 20)
    assert found["near_duplicates"] == 1.0 and found["reasked"] == 1.0


def test_nothing_accepted_and_nobody_tried_leave_figures_out() -> None:
    found = named(Curriculum(Setting(), 2).round(1, []))
    assert found == {"alarm_near_duplicates": 0.0, "alarm_coverage": 0.0, "alarm_answer_entropy": 0.0}
    found = named(Curriculum(Setting(), 2).round(1, [asked(1, None)]))
    assert "learnability" not in found and found["targets"] == 1.0
    assert "coverage_targets" not in found, "nobody says how many there are"


def test_replayed_questions_count_as_played_and_not_as_new() -> None:
    found = named(Curriculum(Setting(), 2).round(1, [asked(1, 0.5), asked(1, 1.0, REPLAYED)]))
    assert found["solved_100"] == 0.5 and found["near_duplicates"] == 0.0 and found["targets"] == 1.0


def test_given_questions_are_counted_and_not_watched() -> None:
    curriculum = Curriculum(Setting(), 2, proposed=False)
    for step in range(1, 40):
        found = named(curriculum.round(step, [asked(step if step < 20 else 1, 0.5, GIVEN)]))
        assert curriculum.said == []
    assert found["near_duplicates"] == 1.0 and not any(name.startswith("alarm") for name in found)


def test_the_entropy_of_the_answers() -> None:
    setting = Setting(classes=4, class_of=lambda target: target[0])
    found = named(Curriculum(setting, 3).round(1, [asked(at, None, target=t) for at, t in enumerate("aabc")]))
    assert found["answer_entropy"] == pytest.approx(1.5)


def test_a_window_forgets() -> None:
    window = Window(2)
    for things in (["a", "b"], ["b"], ["c", "c"]):
        window.add(things)
    assert window.counts == Counter(b=1, c=2) and window.ever == {"a", "b", "c"}
    assert (
        window.spread(None) == 2 / 3
        and window.spread(2) == 1.0
        and window.entropy() == pytest.approx(math.log2(3) - 2 / 3)
    )
    assert Window(2).spread(None) is None


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("Yes", "yes_no"),
        ("1987", "year"),
        ("in 2011", "year"),
        ("12 March 1901", "date"),
        ("2001-09-11", "date"),
        ("4,300", "number"),
        ("about twelve of them", "phrase"),
        ("12 km", "number"),
        ("38 %", "number"),
        ("Paris", "word"),
        ("Marie Curie", "name"),
        ("The Lord of the Rings", "phrase"),
        ("", "phrase"),
    ],
)
def test_classes_of_answers(answer: str, kind: str) -> None:
    assert class_of(answer) == kind and kind in CLASSES


@pytest.mark.parametrize("seed", range(6))
def test_near_duplicates_of_a_stream_are_those_of_the_last_questions(seed: int) -> None:
    rng = random.Random(seed)
    words = [f"w{i}" for i in range(30)]
    bases = [[rng.choice(words) for _ in range(rng.randint(0, 16))] for _ in range(12)]
    recent, earlier, found = Recent(9), list[frozenset[str]](), 0
    for _ in range(300):
        said = list(rng.choice(bases))
        for _ in range(rng.randint(0, 3)):
            if said:
                said[rng.randrange(len(said))] = rng.choice(words)
        own = features(" ".join(said))
        wanted = any(similarity(own, other) >= NEAR for other in earlier[-9:])
        assert recent.near(" ".join(said)) is wanted
        earlier.append(own)
        found += wanted
    assert 20 < found < 280


def test_near_duplicates_are_looked_for_among_as_many_questions_however_many_a_round_has() -> None:
    """The same questions in the same order, three a round and then all at once."""
    questions = [asked(at % 40 if at % 3 else at, None) for at in range(240)]
    slow, fast = Curriculum(Setting(), 4), Curriculum(Setting(), 4)
    shares = [named(slow.round(at, questions[3 * at : 3 * at + 3]))["near_duplicates"] for at in range(80)]
    assert sum(shares) / 80 == pytest.approx(named(fast.round(1, questions))["near_duplicates"])
    lone = [asked(at % (EARLIER + 1), None) for at in range(3 * EARLIER)]
    assert named(Curriculum(Setting(), 4).round(1, lone))["near_duplicates"] == 0.0, "the one before the last EARLIER"


def test_the_half_life_by_hand() -> None:
    life = HalfLife()
    assert life.median() is None
    for question, rates in {
        "a": {1: 0.0, 3: 0.5},  # half way after 2
        "b": {1: 0.5, 2: 0.6, 5: 0.8},  # after 4
        "c": {1: 0.2, 4: 0.3},  # not after 3: censored
        "d": {2: 1.0, 9: 0.0},  # has no way to go before 9
        "e": {2: 0.4},  # was never asked again
        "f": {1: 0.0, 2: 0.0, 7: 1.0, 8: 0.0},  # after 6
    }.items():
        for round_, rate in rates.items():
            life.add(question, round_, rate)
    # 3 of 4 are left after 2 rounds; c is censored at 3; of 2 one is left after 4: 3/4 * 1/2 <= 1/2
    assert life.median() == 4.0


@pytest.mark.parametrize("seed", range(4))
def test_the_half_life_against_its_definition(seed: int) -> None:
    rng, life = random.Random(seed), HalfLife()
    seen: dict[str, list[tuple[int, float]]] = {}
    for round_ in range(1, 60):
        for _ in range(6):
            question = f"q{rng.randrange(25)}"
            rate = rng.choice([0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0]) if rng.random() < 0.4 else 0.0
            seen.setdefault(question, []).append((round_, rate))
            life.add(question, round_, rate)
    ends: list[tuple[int, bool]] = []
    for rates in seen.values():
        missed = next((i for i, (_, rate) in enumerate(rates) if rate < 1), len(rates) - 1)
        (first, p), *later = rates[missed:]
        if later := [one for one in later if one[0] > first]:
            over = next((at - first for at, rate in later if rate >= (1 + p) / 2), None)
            ends.append((later[-1][0] - first, False) if over is None else (over, True))
    alive, wanted = Fraction(1), None
    for at in sorted({end for end, over in ends if over}):
        alive *= 1 - Fraction(sum(end == at and over for end, over in ends), sum(end >= at for end, _ in ends))
        if alive <= Fraction(1, 2):
            wanted = float(at)
            break
    assert life.median() == wanted is not None


def test_the_half_life_is_met_exactly() -> None:
    """n questions whose times come one round after the other: half of them at n / 2, whatever the floats say."""
    for n in range(1, 120):
        life = HalfLife()
        for i in range(n):
            life.add(f"q{i}", 0, 0.0)
            life.add(f"q{i}", i + 1, 1.0)
        assert life.median() == (n + 1) // 2, n
    life = HalfLife()
    life.add("a", 1, 5 / 6)
    life.add("a", 3, 11 / 12)
    assert life.median() == 2.0


def test_a_question_that_was_lucky_at_first_is_watched_from_its_first_miss() -> None:
    life = HalfLife()
    for round_, rate in {1: 1.0, 2: 0.0, 5: 1.0}.items():
        life.add("a", round_, rate)
    assert life.median() == 3.0
