"""Engines without a model: a script, the cost model of decoding against closed forms, and a script's turns that take time."""

from __future__ import annotations

import math
import time

import pytest

from ssp.base.errors import Fault, InvariantError
from ssp.engines import Sampling, ScriptedEngine
from ssp.engines.base import LiveEngine
from ssp.engines.simulated import DecodePace, Decoding, SimulatedEngine


def count_up(history: list[int], seed: int, turn: int) -> list[int]:
    return [history[-1] + 1, seed, 100 + turn, 9, 9]


def test_a_script_sees_history_seed_and_turn() -> None:
    engine = ScriptedEngine(count_up)
    engine.load({}, 5)
    slots = engine.open([40, 50])
    first = engine.step(slots, [[1, 2], [3]], Sampling(1.0, 10, (9,)))
    second = engine.step(slots[1:], [[7]], Sampling(1.0, 2, (9,)))
    assert [g.ids for g in first] == [[3, 40, 100, 9], [4, 50, 100, 9]]
    assert (second[0].ids, second[0].stopped) == ([8, 50], False)
    assert first[0].logprobs == [0.0] * 4
    assert (first[0].version, first[0].stopped) == (5, True)


def test_load_and_close_forget_slots() -> None:
    engine = ScriptedEngine(count_up)
    slots = engine.open([1, 2])
    engine.close(slots[:1])
    engine.close(slots[:1])
    with pytest.raises(InvariantError):
        engine.step(slots, [[1], [1]], Sampling(1.0, 1, ()))
    engine.load({}, 1)
    with pytest.raises(InvariantError):
        engine.step(slots[1:], [[1]], Sampling(1.0, 1, ()))


PACE = DecodePace(0.006, 0.00007, 64)


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
    decoding = Decoding[int](DecodePace(1.0, 1.0, 2), started.append)
    decoding.add(0.0, 10, 1)
    assert decoding.advance(10.0) == [] and decoding.drawn(1) == 5  # alone: two seconds a token
    decoding.add(10.0, 1, 2)
    decoding.add(10.0, 1, 3)
    assert started == [1, 2]
    assert play(decoding) == [(13.0, 2), (16.0, 3), (22.0, 1)] and started == [1, 2, 3]


def test_what_is_dropped_never_ends() -> None:
    decoding = Decoding[int](DecodePace(1.0, 0.0, 1))
    for item in (1, 2, 3):
        decoding.add(0.0, 5, item)
    decoding.drop(1)
    decoding.drop(3)
    decoding.drop(4)
    assert play(decoding) == [(5.0, 2)]


END = 9
SAMPLING = Sampling(1.0, 10_000, (END,))


def engine(tokens: int = 20, step: float = 0.002, sequences: int = 4) -> SimulatedEngine:
    """Every turn says its slot's seed so often."""
    return SimulatedEngine(lambda ids, seed, turn: [seed] * (tokens - 1) + [END], DecodePace(step, 0.0, sequences))


def test_turns_take_the_time_of_their_tokens_and_wait_for_room() -> None:
    made = engine()
    assert isinstance(made, LiveEngine)
    slots = made.open([1, 2, 3, 4, 5])
    began = time.monotonic()
    futures = [made.submit(slot, [7], SAMPLING) for slot in slots]
    said = [future.result(5) for future in futures[:4]]
    first = time.monotonic() - began
    last = futures[4].result(5)
    assert first >= 0.04 and time.monotonic() - began >= 0.08  # 20 tokens of 2 ms; the fifth had to wait
    assert [generation.ids[0] for generation in [*said, last]] == [1, 2, 3, 4, 5]
    assert all(generation.stopped and len(generation.ids) == len(generation.logprobs) == 20 for generation in said)


def test_weights_in_flight_mark_the_tokens_that_they_draw() -> None:
    made = engine(tokens=50, step=0.01)
    made.load({}, 3)
    (slot,) = made.open([1])
    future = made.submit(slot, [7], SAMPLING)
    time.sleep(0.1)
    made.load({}, 4, keep=True)
    found = future.result(60)
    assert found.version == 4 and found.versions is not None
    assert sorted(found.versions) == found.versions and set(found.versions) == {3, 4}
    assert len(found.versions) == 50 and found.versions.count(3) >= 5
    again = made.submit(slot, [7], SAMPLING).result(5)
    assert (again.version, again.versions) == (4, None)


def test_a_load_and_a_close_abort_turns() -> None:
    made = engine(tokens=5000)
    slot, other = made.open([1, 2])
    futures = [made.submit(slot, [7], SAMPLING), made.submit(other, [7], SAMPLING)]
    with pytest.raises(InvariantError, match="turn under way"):
        made.submit(slot, [7], SAMPLING)
    made.close([slot])
    with pytest.raises(Fault, match="aborted"):
        futures[0].result(5)
    made.load({}, 1)
    for future in futures:
        with pytest.raises(Fault, match="aborted"):
            future.result(5)
    with pytest.raises(InvariantError, match="not open"):
        made.submit(slot, [7], SAMPLING)
