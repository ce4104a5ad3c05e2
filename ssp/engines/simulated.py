"""Engines without a model: they play a script, in no time or at the pace of a cost model.

Log-probs are 0.0: a script is certain of what it says. The cost model: a step of `running`
sequences takes `base + each * running` seconds and gives each one token; at most `sequences` run at
once, the others wait in the order in which they came."""

import heapq
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from ssp.base.errors import Fault, InvariantError
from ssp.config.role import EngineConfig
from ssp.engines.base import FreeEngine, Generation, Sampling, Slot, Slots, check_step, drawn_by

Script = Callable[[list[int], int, int], list[int]]
"""(ids of the slot so far, the slot's seed, turn from 0) → ids of the next turn, which are cut
after the first stop id."""


class ScriptedEngine(Slots):
    """Plays `script` in every slot, in lock step and in no time. As deterministic as the script."""

    def __init__(self, script: Script, version: int = 0) -> None:
        super().__init__()
        self.version = version
        self._script = script

    def load(self, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        """Take the version and forget every slot; the weights are not looked at."""
        if keep:
            raise InvariantError("a lock-step engine has no turns in flight")
        self.version = version
        self._slots.clear()

    def step(
        self, slots: list[int], pending: list[list[int]], samplings: Sampling
    ) -> list[Generation]:
        """One turn of the script in each slot."""
        check_step(slots, pending, self._slots)
        turns = zip(slots, pending, strict=True)
        return [self._say(self._slots[slot], ids, samplings) for slot, ids in turns]

    def _say(self, slot: Slot, pending: list[int], sampling: Sampling) -> Generation:
        slot.ids.extend(pending)
        words = sampling.stop_words
        ids = list[int]()
        stopped = False
        for id in self._script(list(slot.ids), slot.seed, slot.turns)[: sampling.max_tokens]:
            ids.append(id)
            completes = words is not None and words.may_end(id) and words.hit(ids)
            stopped = completes or id in sampling.stop_ids
            if stopped:
                break
        slot.ids.extend(ids)
        slot.turns += 1
        return Generation(ids, [0.0] * len(ids), self.version, stopped)


Item = TypeVar("Item")


@dataclass(frozen=True)
class DecodePace:
    """What a step costs: `base` seconds, and `each` for every running sequence. `sequences`: the
    most that run at once."""

    base: float
    each: float
    sequences: int

    def step(self, running: int) -> float:
        """Seconds of one step."""
        return self.base + self.each * running

    @property
    def full(self) -> float:
        """Seconds a token at full occupancy."""
        return self.step(self.sequences) / self.sequences


class Decoding(Generic[Item]):
    """The sequences of one engine. `started` is called with each item when its first token is
    drawn. `busy`: seconds in which something ran; `slots`: the same, times the sequences that ran;
    `tokens`: given so far."""

    def __init__(
        self, pace: DecodePace, started: Callable[[Item], None] = lambda item: None
    ) -> None:
        self.pace = pace
        self._started = started
        self._now = self._steps = 0.0  # an item of n tokens ends n steps after its start
        self._count = 0
        # heap of (step at which it ends, its number, step at which it started, item)
        self._running: list[tuple[float, int, float, Item]] = []
        self._waiting: deque[tuple[int, Item]] = deque()
        self.busy = self.tokens = self.slots = 0.0

    def add(self, now: float, tokens: int, item: Item) -> None:
        """Queue `item`, which wants `tokens` tokens, at least one. Call `advance` before, which
        takes what ends up to `now`."""
        self._pass(now)
        self._waiting.append((max(1, tokens), item))
        self._admit()

    def next(self) -> float:
        """When the next item ends, if nothing is added; infinity when none runs."""
        if not self._running:
            return math.inf
        return self._now + (self._running[0][0] - self._steps) * self.pace.step(len(self._running))

    def advance(self, now: float) -> list[Item]:
        """Items that end up to `now`, in the order of their ends; those who waited start in
        between."""
        ended = []
        while (end := self.next()) <= now:
            self._pass(end)
            self._steps = max(self._steps, self._running[0][0])
            ended.append(heapq.heappop(self._running)[-1])
            self._admit()
        self._pass(now)
        return ended

    def drawn(self, item: Item) -> int:
        """Whole tokens that `item` has by now; 0 while it waits."""
        for _, _, start, other in self._running:
            if other is item:
                return int(self._steps - start)
        return 0

    def drop(self, item: Item) -> None:
        """Forget an item before its end; unknown ones are fine."""
        self._running = [entry for entry in self._running if entry[-1] is not item]
        heapq.heapify(self._running)
        self._waiting = deque(entry for entry in self._waiting if entry[1] is not item)
        self._admit()

    def _pass(self, now: float) -> None:
        """Let time go by in which nothing starts or ends."""
        passed = now - self._now
        running = len(self._running)
        if passed <= 0:
            return
        self._now = now
        if running:
            steps = passed / self.pace.step(running)
            self._steps += steps
            self.busy += passed
            self.slots += passed * running
            self.tokens += steps * running

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self.pace.sequences:
            tokens, item = self._waiting.popleft()
            self._count += 1  # two that end together end in the order in which they started
            heapq.heappush(self._running, (self._steps + tokens, self._count, self._steps, item))
            self._started(item)


@dataclass(eq=False)
class _Turn:
    """A turn of a slot that is under way. `marks`: see `drawn_by`."""

    slot: int
    generation: Generation
    future: Future[Generation] = field(default_factory=Future)
    marks: list[tuple[int, int]] = field(default_factory=list)


class SimulatedEngine(ScriptedEngine):
    """Plays `script` at `pace`, as a `LiveEngine` whose thread sleeps between two ends of turns.
    Called from any thread; each slot has one turn at a time."""

    def __init__(self, script: Script, pace: DecodePace) -> None:
        super().__init__(script)
        self._moved = threading.Condition(threading.RLock())
        self._turns: dict[int, _Turn] = {}
        self._decoding = Decoding[_Turn](pace, self._started)
        self._over = False
        self._thread = threading.Thread(target=self._run, name="simulated-engine", daemon=True)
        self._thread.start()

    def load(self, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        """Take the version; without `keep` every slot is forgotten and turns under way are
        aborted."""
        with self._moved:
            self._end_turns()
            self.version = version
            for turn in self._turns.values():
                if turn.marks:
                    turn.marks.append((self._decoding.drawn(turn), version))
            if not keep:
                self._abort(list(self._turns))
                self._slots.clear()

    def open(self, seeds: list[int]) -> list[int]:
        """New empty slots."""
        with self._moved:
            return super().open(seeds)

    def close(self, slots: list[int]) -> None:
        """Forget slots; a turn under way there is aborted."""
        with self._moved:
            self._abort(slots)
            super().close(slots)

    def submit(self, slot: int, pending: list[int], sampling: Sampling) -> Future[Generation]:
        """One turn of one slot. The future raises Fault `aborted` when its slot or the engine ends
        before it."""
        with self._moved:
            if slot in self._turns:
                raise InvariantError(f"slot {slot} has a turn under way")
            check_step([slot], [pending], self._slots)
            generation = self._say(self._slots[slot], pending, sampling)
            turn = self._turns[slot] = _Turn(slot, generation)
            if self._over:
                self._abort([slot])
            else:
                self._decoding.add(self._end_turns(), len(generation.ids), turn)
                self._moved.notify_all()
            return turn.future

    step = FreeEngine.step

    def _started(self, turn: _Turn) -> None:
        turn.marks.append((0, self.version))

    def _abort(self, slots: list[int]) -> None:
        for turn in [self._turns.pop(slot) for slot in slots if slot in self._turns]:
            self._decoding.drop(turn)
            turn.future.set_exception(Fault("aborted", "the turn was aborted"))

    def stop(self) -> None:
        """End the thread; turns under way are aborted."""
        with self._moved:
            self._over = True
            self._abort(list(self._turns))
            self._moved.notify_all()

    def _run(self) -> None:
        with self._moved:
            while not self._over:
                left = self._decoding.next() - time.monotonic()
                if left > 0:
                    self._moved.wait(None if left == math.inf else left)
                self._end_turns()

    def _end_turns(self) -> float:
        """Give the turns that have ended by now; returns the time."""
        now = time.monotonic()
        for turn in self._decoding.advance(now):
            del self._turns[turn.slot]
            said = turn.generation
            said.version, said.versions = drawn_by(turn.marks, len(said.ids))
            turn.future.set_result(said)
        return now


def scripted(config: EngineConfig, script: Script) -> ScriptedEngine:
    """The engine that plays `script` in no time."""
    return ScriptedEngine(script)


def simulated(config: EngineConfig, script: Script) -> SimulatedEngine:
    """The engine that plays `script` in the time that the settings say."""
    cost = config.simulated
    pace = DecodePace(cost.step_ms / 1e3, cost.sequence_ms / 1e3, config.sequences)
    return SimulatedEngine(script, pace)
