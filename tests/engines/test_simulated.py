"""The simulated engine: a script's turns that take time, and no CPU."""

from __future__ import annotations

import time

import pytest

from ssp.base.errors import Fault, InvariantError
from ssp.engines.base import LiveEngine, Sampling
from ssp.engines.decoding import Pace
from ssp.engines.simulated import SimulatedEngine

END = 9
SAMPLING = Sampling(1.0, 10_000, (END,))


def engine(tokens: int = 20, step: float = 0.002, sequences: int = 4) -> SimulatedEngine:
    """Every turn says its slot's seed so often."""
    return SimulatedEngine(lambda ids, seed, turn: [seed] * (tokens - 1) + [END], Pace(step, 0.0, sequences))


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
