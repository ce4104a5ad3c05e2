"""The cost model of decoding against closed forms."""

from __future__ import annotations

import math

import pytest

from ssp.engines.decoding import Decoding, Pace

PACE = Pace(0.006, 0.00007, 64)


def play(decoding: Decoding[int], until: float = math.inf) -> list[tuple[float, int]]:
    """(time, item) of every end."""
    ended = []
    while (at := decoding.next()) <= until and at < math.inf:
        ended += [(at, item) for item in decoding.advance(at)]
    return ended


def test_alike_sequences_end_together_wave_after_wave() -> None:
    decoding = Decoding[int](PACE)
    for item in range(128):
        decoding.add(0.0, 1000, item)
    ended = play(decoding)
    wave = 1000 * (0.006 + 0.00007 * 64)
    assert [round(at / wave, 6) for at, _ in ended] == [1.0] * 64 + [2.0] * 64
    assert [item for _, item in ended] == list(range(128))
    assert decoding.tokens == pytest.approx(128_000) and decoding.busy == pytest.approx(2 * wave)


def test_a_shorter_batch_makes_shorter_steps() -> None:
    decoding = Decoding[int](PACE)
    decoding.add(0.0, 100, 1)
    decoding.add(0.0, 300, 2)
    two, one = PACE.step(2), PACE.step(1)
    assert play(decoding) == [(pytest.approx(100 * two), 1), (pytest.approx(100 * two + 200 * one), 2)]


def test_one_that_comes_later_slows_the_others_from_then_on() -> None:
    started: list[int] = []
    decoding = Decoding[int](Pace(1.0, 1.0, 2), started.append)
    decoding.add(0.0, 10, 1)
    assert decoding.advance(10.0) == [] and decoding.drawn(1) == 5  # alone: two seconds a token
    decoding.add(10.0, 1, 2)
    decoding.add(10.0, 1, 3)
    assert started == [1, 2]
    assert play(decoding) == [(13.0, 2), (16.0, 3), (22.0, 1)] and started == [1, 2, 3]


def test_what_is_dropped_never_ends() -> None:
    decoding = Decoding[int](Pace(1.0, 0.0, 1))
    for item in (1, 2, 3):
        decoding.add(0.0, 5, item)
    decoding.drop(1)
    decoding.drop(3)
    decoding.drop(4)
    assert play(decoding) == [(5.0, 2)]
