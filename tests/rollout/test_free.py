"""Free-running engines and wall-clock limits, on a clock of the test's own."""

from __future__ import annotations

import heapq
import random
import threading
from concurrent.futures import Future

import pytest
from scripts import ANSWER, LIMITS, QWEN, SEARCH_R1, Books, encode, limits, search, tasks

from ssp.base.episode import Episode, Outcome
from ssp.base.errors import Fault
from ssp.engines import Generation, Sampling, ScriptedEngine
from ssp.engines.base import FreeEngine
from ssp.game.rollout import Settings, rollout

N = 64


def script(history: list[int], seed: int, turn: int) -> list[int]:
    """Episode i searches i mod 4 times, then answers; every ninth one says nothing valid first."""
    if seed % 9 == 0 and turn == 0:
        return encode(QWEN, "what?<|im_end|>")
    done = QWEN.decode(history).count("</information>") - 1
    return encode(QWEN, search(f"q{done} of {seed % 5}") if done < seed % 4 else ANSWER)


def seconds(seed: int, turn: int) -> float:
    """One turn of each episode is slow, and not the same one for all."""
    return 0.2 if turn == seed % 4 else random.Random(f"{seed} {turn}").uniform(0.001, 0.02)


class FreeRunning(ScriptedEngine):
    """The script with a virtual clock: a turn is done when every running episode has asked for one and it is the next due.

    So the clock moves on only when the rollout has nothing else to do, and `now` is what the whole took.
    """

    def __init__(self, alive: int) -> None:
        super().__init__(script, version=7)
        self.now, self._alive, self._due, self._count = 0.0, alive, [], 0
        self._lock = threading.Lock()
        self.spent = [0.0] * alive

    def submit(self, slot: int, pending: list[int], sampling: Sampling) -> Future[Generation]:
        future: Future[Generation] = Future()
        state = self._slots[slot]
        took = seconds(state.seed, state.turns)
        with self._lock:
            self.spent[state.seed] += took
            self._count += 1
            heapq.heappush(self._due, (self.now + took, self._count, slot, pending, sampling, future))
            if len(self._due) == self._alive:
                threading.Thread(target=self._finish_next).start()
        return future

    def _finish_next(self) -> None:
        with self._lock:
            while self._due and len(self._due) == self._alive:
                self.now, _, slot, pending, sampling, future = heapq.heappop(self._due)
                (generation,) = self.step([slot], [pending], sampling)
                self._alive -= "</answer>" in QWEN.decode(generation.ids)
                future.set_result(generation)


def told(episode: Episode) -> tuple[object, ...]:
    log = episode.log
    return (episode.id, log.ids, log.kinds, log.versions, episode.text, episode.queries, episode.hits, episode.final)


@pytest.mark.covers("SR-25")
def test_episodes_do_not_wait_for_each_other_and_come_out_as_in_lock_step() -> None:
    settings = Settings(limits(searches=4), 1.0, 3)
    engine = FreeRunning(N)
    assert isinstance(engine, FreeEngine)
    free, took = rollout(engine, SEARCH_R1, Books(), tasks(N), settings)
    assert engine.now < 1.3 * max(engine.spent)
    turns = [[seconds(seed, turn) for seed in range(N)] for turn in range(5)]
    assert sum(map(max, turns)) > 1.3 * max(engine.spent), "in lock step it takes longer"
    lock_step, _ = rollout(ScriptedEngine(script, version=7), SEARCH_R1, Books(), tasks(N), settings)
    assert [told(episode) for episode in free] == [told(episode) for episode in lock_step]
    assert not engine._slots and set(took) == {"generate", "search"}


class Flaky(ScriptedEngine):
    """Turns of episode 1 fail with a fault, or with a bug."""

    def __init__(self, error: Exception) -> None:
        super().__init__(script, version=7)
        self._error = error

    def submit(self, slot: int, pending: list[int], sampling: Sampling) -> Future[Generation]:
        future: Future[Generation] = Future()
        if self._slots[slot].seed == 1:
            future.set_exception(self._error)
        else:
            future.set_result(self.step([slot], [pending], sampling)[0])
        return future


def test_a_fault_of_one_turn_is_void_for_one_episode_and_a_bug_goes_up() -> None:
    settings = Settings(LIMITS, 1.0, 3)
    episodes, _ = rollout(Flaky(Fault("engine_died")), SEARCH_R1, Books(), tasks(4), settings)
    assert [(e.outcome, e.cause, e.final) for e in episodes] == [
        (None, "", "Paris"),
        (Outcome.VOID, "engine_died", None),
        (None, "", "Paris"),
        (None, "", "Paris"),
    ]
    down = Books()
    down.down = True
    episodes, _ = rollout(Flaky(Fault("engine_died")), SEARCH_R1, down, tasks(5), settings)
    assert [e.cause for e in episodes] == ["", "engine_died", "retriever_down", "retriever_down", ""]
    engine = Flaky(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        rollout(engine, SEARCH_R1, Books(), tasks(4), settings)
    assert not engine._slots
