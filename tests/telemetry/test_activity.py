"""Who does what: busy seconds, idle shares, spans, what goes on now."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ssp.base import crew
from ssp.base.errors import Fault
from ssp.record.ledger.writer import LedgerWriter
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.crews.seams import Judges, Learners, Players
from ssp.selfplay.crews.watched import Watched, watched
from ssp.selfplay.records import PlayOrder, PlayReport
from ssp.selfplay.settings import load
from ssp.telemetry.activity import STEP, Activity


class Crew(crew.Crew[Any]):
    """Each call takes the seconds that it is told, one after the other for each worker, as actors do."""

    size = 0

    def __init__(self, kind: Any, name: str, size: int = 1) -> None:
        super().__init__(kind, name)
        self.size = size
        self._turn = [asyncio.Lock() for _ in range(size)]

    async def perform(self, worker: int, call: crew.CrewCall, *args: Any) -> Any:
        method = call.name
        if method == "refresh":
            return await asyncio.sleep(0.01, {})
        async with self._turn[worker]:
            await asyncio.sleep(args[-1])
        if method == "grade":
            raise Fault("judge_died", "gone")
        return ("block", PlayReport([], {"sync_load": 0.02, "generate": 0.05})) if method == "play" else args[-1]


class Spans(list[SimpleNamespace]):
    def span(self, track: str, name: str, start: float, end: float, args: dict[str, float] | None = None) -> None:
        self.append(SimpleNamespace(track=track, name=name, start=start, end=end, args=args or {}))

    def named(self, name: str) -> list[SimpleNamespace]:
        return [span for span in self if span.name == name]


def play(stem: str, seconds: float) -> tuple[Any, ...]:
    task = SimpleNamespace(item="q1" if stem.startswith("eval") else "", fields={"question": "?"})
    return [task] * 2, PlayOrder(1.0, stem, 4), 7, seconds


def test_calls_of_one_actor_follow_each_other_and_its_idle_share_is_what_is_left() -> None:
    spans = Spans()
    activity = Activity(spans.span)
    made = Watched(Crew(Players, "solver", 2), activity)

    async def run() -> None:
        STEP.set(4)
        await asyncio.gather(made[0].play(*play("solver-0", 0.1)), made[0].play(*play("eval-x", 0.1)))
        assert activity.now() == ""
        waiting = asyncio.create_task(made[1].play(*play("solver-1", 0.1)))
        await asyncio.sleep(0.05)
        assert activity.now() == "solver solve 1/2 0s"
        assert 0.03 < activity.busy()["solver-1"] < 0.1
        await waiting

    asyncio.run(run())
    first, second, other = [span for span in spans if span.name in ("solve", "evaluate")]
    assert (first.name, second.name, first.track) == ("solve", "evaluate", "solver-0") and other.track == "solver-1"
    assert second.start == first.end and first.args["step"] == 4 and first.args["version"] == 7
    assert first.args["episodes"] == 2 and first.args["generate_s"] == 0.05
    sync = spans.named("sync")[0]
    assert sync.start == first.start and sync.end - sync.start == pytest.approx(0.02)
    busy = activity.busy()
    assert 0.19 < busy["solver-0"] and busy["solver-0"] == pytest.approx(2 * busy["solver-1"], rel=0.5)
    wall = other.end - first.start
    share = activity.idle()["time/idle_share_solver"]
    assert share == pytest.approx(1 - sum(busy.values()) / 2 / wall, abs=0.1)
    assert activity.version("solver") == 7 and activity.version("judge") == -1


def test_blocks_that_are_played_at_once_have_lines_of_their_own_and_count_once() -> None:
    """Ended in another order than sent: whoever ends later was at work all the while."""
    spans = Spans()
    activity = Activity(spans.span)
    done = [asyncio.Event() for _ in range(3)]

    class Engine(Crew):
        async def perform(self, worker: int, call: crew.CrewCall, *args: Any) -> Any:
            await args[-1].wait()
            return "block", PlayReport([], {})

    made = Watched(Engine(Players, "solver"), activity, at_once=2)

    async def run() -> None:
        calls = [asyncio.create_task(made[0].play(*play(f"solver-{i}", done[i]))) for i in range(2)]
        await asyncio.sleep(0.05)
        assert activity.now().startswith("solver solve")
        for i in (1, 0):
            done[i].set()
            await calls[i]
            await asyncio.sleep(0.02)
        done[2].set()
        await made[0].play(*play("solver-2", done[2]))

    asyncio.run(run())
    second, first, third = spans
    assert [span.track for span in (first, second, third)] == ["solver-0", "solver-0 2", "solver-0"]
    assert first.start <= second.start < second.end < first.end < third.start  # neither waited for the other
    assert activity.busy()["solver-0"] == pytest.approx(first.end - first.start + third.end - third.start, abs=0.005)
    assert activity.now() == ""


def test_a_fault_ends_a_span_and_asking_is_no_work() -> None:
    spans = Spans()
    activity = Activity(spans.span)
    made = Watched(Crew(Judges, "judge"), activity)
    with pytest.raises(Fault):
        asyncio.run(made[0].grade(0.01))
    asyncio.run(made[0].answers(0.01))
    assert [span.name for span in spans] == ["grade"] and activity.now() == ""


def test_new_weights_in_flight_have_a_track_of_their_own() -> None:
    spans = Spans()
    activity = Activity(spans.span)
    made = Watched(Crew(Players, "solver"), activity)
    asyncio.run(made[0].refresh(8, "parcel"))
    assert [(s.track, s.name, s.args) for s in spans] == [("solver-0 sync", "sync", {"version": 8})]
    assert activity.busy() == {"solver-0": 0.0}


def test_a_cast_is_watched_once_a_crew() -> None:
    spans = Spans()
    activity = Activity(spans.span)
    learner = Crew(Learners, "learner-solver")
    players, ledger = {"solver": Crew(Players, "solver", 2)}, Crew(LedgerWriter, "ledger")
    cast = Cast(players, Crew(Judges, "judge"), {"proposer": learner, "solver": learner}, ledger)
    seen = watched(cast, activity, load("quickstart"))
    assert seen.learners["proposer"] is seen.learners["solver"] is not learner
    assert seen.ledger is ledger
    assert replace(seen).players["solver"].size == 2
    kinds = {"solver": ["solver-0", "solver-1"], "judge": ["judge-0"], "learner_solver": ["learner-solver-0"]}
    assert activity.kinds() == kinds
    asyncio.run(seen.learners["solver"][0].update(0.01))
    assert [(span.track, span.name) for span in spans] == [("learner-solver-0", "learn")]
    assert set(activity.idle()) == {f"time/idle_share_{kind}" for kind in ("solver", "judge", "learner_solver")}
