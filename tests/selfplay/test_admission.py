"""Pace and void gate: nothing starts too early, nothing goes on when too much is void."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssp.base.errors import VoidLimit
from ssp.config.schema import VoidConfig
from ssp.selfplay import admission
from ssp.selfplay.admission import JUDGE, VERIFY, Pace, VoidGate
from tests.blocks import made


@settings(max_examples=60, deadline=None)
@given(bound=st.integers(0, 2), start=st.integers(0, 3), moves=st.lists(st.booleans(), max_size=12))
def test_pace_admits_exactly_when_the_bound_allows(bound: int, start: int, moves: list[bool]) -> None:
    """`moves`: the role under test advances (True), or the other one does, which must not matter."""

    async def work() -> None:
        pace = Pace({"solver": bound, "proposer": 0}, done=start)
        admitted: set[int] = set()

        async def wait(round_: int) -> None:
            await pace.admit("solver", round_)
            assert pace.over or pace.done["solver"] >= round_ - bound
            admitted.add(round_)

        tasks = [asyncio.create_task(wait(round_)) for round_ in range(start, start + 20)]
        for move in [False, *moves]:
            if move:
                await pace.advance("solver")
            else:
                await pace.advance("proposer")
            for _ in range(4):
                await asyncio.sleep(0)
            assert admitted == set(range(start, pace.done["solver"] + bound + 1))
        await pace.release()  # the run ends: who still waits is let go
        await asyncio.gather(*tasks)
        assert len(admitted) == 20

    asyncio.run(work())


def test_a_run_of_nothing_but_voids_ends_as_a_failure() -> None:
    gate = VoidGate(made(VoidConfig, window=20))
    assert gate.verdict() is None
    gate.record("retriever_down", 12)
    found = gate.verdict()
    assert isinstance(found, VoidLimit) and "last 12 outcomes void: retriever_down 12" in str(found)
    gate.record("", 1)
    assert gate.shut_since and gate.verdict() is None


class Time:
    def __init__(self) -> None:
        self.now, self.slept = 1000.0, 0.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(admission.time, "monotonic", made.monotonic)
    monkeypatch.setattr(admission.asyncio, "sleep", made.sleep)
    return made


def admit(gate: VoidGate) -> None:
    """Drive `admit` by hand: the event loop's own clock is the faked one."""
    work = gate.admit()
    with pytest.raises(StopIteration):
        work.send(None)


def shut_gate(cfg: VoidConfig, said: list[str] | None = None) -> VoidGate:
    gate = VoidGate(cfg, (said if said is not None else []).append)
    gate.record("", 100)
    gate.record("retriever_down", 11)
    assert gate.shut_since
    return gate


CFG = made(VoidConfig, limit=0.05, window=200, probe_every=10.0, give_up_after=60.0)


def test_open_up_to_the_limit(clock: Time) -> None:
    gate = VoidGate(CFG)
    gate.record("engine_died", 10)  # 10 of a window of 200 is the limit, not past it
    assert gate.shut_since is None and gate.share == 0.05
    admit(gate)
    assert clock.slept == 0
    gate.record("engine_died", told=False)
    assert gate.shut_since and gate.news() == {"engine_died": 10}


def test_a_probe_goes_out_every_ten_seconds_not_at_once(clock: Time) -> None:
    said: list[str] = []
    gate = shut_gate(CFG, said)
    for probe in (1, 2, 3):
        admit(gate)
        assert probe * 10 <= clock.slept <= probe * 10 + 1
    assert said.count("probing with one round") == 3 and "admission stopped" in said[0]


def test_who_stops_does_not_wait_for_a_shut_gate(clock: Time) -> None:
    gate = shut_gate(CFG)
    gate.stopping = True
    with pytest.raises(VoidLimit):
        admit(gate)
    assert clock.slept == 0


def test_no_round_goes_out_while_the_judges_do_not_answer(clock: Time) -> None:
    said: list[str] = []
    replies = iter([False, False, True])

    async def answers() -> bool:
        return next(replies)

    gate = VoidGate(CFG, said.append, answers)
    gate.record("judge_down", 200, JUDGE)
    admit(gate)
    assert 30 <= clock.slept <= 33 and said.count("probing with one round") == 1
    assert next(replies, None) is None


def test_resumes_at_half_the_limit(clock: Time) -> None:
    gate = shut_gate(CFG)
    gate.record("", 95)  # the window is full now and moves
    assert gate.share > 0.025 and gate.shut_since
    gate.record("", 99)
    assert gate.shut_since
    gate.record("", 1)
    assert gate.share == 0.025 and gate.shut_since is None
    before = clock.slept
    admit(gate)
    assert clock.slept == before


def test_what_one_stage_does_well_does_not_make_up_for_another(clock: Time) -> None:
    """A judge that is down: every attempt is played well and then not graded."""
    said: list[str] = []
    gate = VoidGate(CFG, said.append)
    for _ in range(5):
        gate.record("", 300)
        gate.record("judge_down", 11, JUDGE)
        gate.record("", 300, VERIFY)
        assert gate.shut_since and gate.share >= 0.055
    assert said == ["admission stopped: 6% of the last 200 outcomes of judge are void (judge_down 11)"]
    gate.record("", 150, JUDGE)
    assert gate.shut_since
    gate.record("", 50, JUDGE)
    assert gate.shut_since is None and said[-1] == "admission resumed"


def test_gives_up_with_the_causes(clock: Time) -> None:
    gate = shut_gate(CFG)
    gate.record("engine_died", 3)
    with pytest.raises(VoidLimit, match="retriever_down 11, engine_died 3"):
        for _ in range(100):
            admit(gate)
    assert 60 < clock.slept < 75
