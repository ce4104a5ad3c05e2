"""Each figure of the curriculum by hand, and the near-duplicates of a stream against their definition."""

from __future__ import annotations

import random

import pytest

from ssp.base.episode import GIVEN, PROPOSED
from ssp.selfplay.curriculum.figures import BANDS, AskedQuestion, Curriculum, band
from ssp.selfplay.questions.groups import NEAR, Recent, features, similarity


def asked(at: int, rate: float | None, kind: str = PROPOSED, target: str = "", **more: object) -> AskedQuestion:
    return AskedQuestion(f"g{at}", f"what is thing {at} of place{at} ?", target or f"t{at}", kind, rate=rate, **more)  # type: ignore[arg-type]


def named(values: dict[str, float]) -> dict[str, float]:
    return {name.removeprefix("curriculum/"): value for name, value in values.items()}


def test_how_hard_the_questions_of_a_round_were() -> None:
    rates = [0.0, 0.0, 0.25, 1 / 6, 0.5, 0.51, 0.75, 5 / 6, 1.0, None]
    found = named(Curriculum(4).round(1, [asked(at, rate) for at, rate in enumerate(rates)]))
    shares = [found[f"solved_{name}"] * 9 for name in BANDS]
    assert shares == pytest.approx([2, 2, 1, 2, 1, 1])
    known = [rate for rate in rates if rate is not None]
    assert found["learnability"] == pytest.approx(sum(4 * p * (1 - p) for p in known) / 9)


@pytest.mark.parametrize("n", range(1, 13))
def test_the_bands_are_half_open(n: int) -> None:
    for k in range(n + 1):
        quarter = 0 if k == 0 else 5 if k == n else next(q for q in (1, 2, 3, 4) if 4 * k <= q * n)
        assert band(k / n) == BANDS[quarter], (k, n)


def test_searches_and_what_a_round_cannot_have() -> None:
    first = [asked(1, 0.5, searches=2, tried=3.0), asked(2, None, searches=4)]
    found = named(Curriculum(2).round(1, first))
    assert (found["searches"], found["solver_searches"]) == (3.0, 3.0)
    assert named(Curriculum(2).round(1, [])) == {"alarm_near_duplicates": 0.0}
    assert "learnability" not in named(Curriculum(2).round(1, [asked(1, None)]))


def test_given_questions_are_counted_and_not_watched() -> None:
    curriculum = Curriculum(2, proposed=False)
    for step in range(1, 40):
        found = named(curriculum.round(step, [asked(step if step < 20 else 1, 0.5, GIVEN)]))
        assert curriculum.said == ""
    assert found["near_duplicates"] == 1.0 and not any(name.startswith("alarm") for name in found)


@pytest.mark.parametrize("seed", range(6))
def test_near_duplicates_of_a_stream_are_those_of_the_last_questions(seed: int) -> None:
    rng = random.Random(seed)
    words = [f"w{i}" for i in range(30)]
    bases = [[rng.choice(words) for _ in range(rng.randint(0, 16))] for _ in range(12)]
    recent, earlier, found = Recent(9), list[tuple[frozenset[str], str]](), 0
    for _ in range(300):
        said = list(rng.choice(bases))
        for _ in range(rng.randint(0, 3)):
            if said:
                said[rng.randrange(len(said))] = rng.choice(words)
        own = features(" ".join(said))
        answer = rng.choice("aaaaaaab")
        wanted = any(
            similarity(own, other) >= NEAR and (answer == theirs or own == other) for other, theirs in earlier[-9:]
        )
        assert recent.near(" ".join(said), answer) is wanted
        earlier.append((own, answer))
        found += wanted
    assert 20 < found < 280
