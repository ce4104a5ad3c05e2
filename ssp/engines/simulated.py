"""Engines without a model: they play a script, in no time or in the time that a model of costs gives.

Log-probs are 0.0: a script is certain of what it says. Refuses to know what the ids mean.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ssp.base.errors import Fault, InvariantError
from ssp.engines.base import FreeEngine, Generation, Sampling, check_step, drawn_by
from ssp.engines.decoding import Decoding, Pace

if TYPE_CHECKING:
    import numpy as np

Script = Callable[[list[int], int, int], list[int]]
"""(ids of the slot so far, the slot's seed, turn from 0) → ids of the next turn; cut after the first stop id."""


@dataclass
class _Slot:
    seed: int
    ids: list[int] = field(default_factory=list)
    turn: int = 0


@dataclass(eq=False)
class _Turn:
    slot: int
    said: Generation
    future: Future[Generation] = field(default_factory=Future)
    marks: list[tuple[int, int]] = field(default_factory=list)  # (tokens drawn before, version that draws from there)


class ScriptedEngine:
    """Plays `script` in every slot, in lock step and in no time. Deterministic as far as the script is."""

    def __init__(self, script: Script, version: int = 0) -> None:
        self.version = version
        self._script = script
        self._slots: dict[int, _Slot] = {}
        self._next = 0

    def load(self, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        """Take the version and forget every slot; the weights are not looked at."""
        if keep:
            raise InvariantError("a lock-step engine has no turns in flight")
        self.version = version
        self._slots.clear()

    def open(self, seeds: list[int]) -> list[int]:
        """New empty slots."""
        slots = list(range(self._next, self._next + len(seeds)))
        self._next += len(seeds)
        self._slots.update({slot: _Slot(seed) for slot, seed in zip(slots, seeds, strict=True)})
        return slots

    def step(self, slots: list[int], pending: list[list[int]], samplings: Sampling) -> list[Generation]:
        """One turn of the script in each slot."""
        check_step(slots, pending, self._slots)
        return [self._say(self._slots[slot], ids, samplings) for slot, ids in zip(slots, pending, strict=True)]

    def _say(self, slot: _Slot, pending: list[int], sampling: Sampling) -> Generation:
        slot.ids.extend(pending)
        words, ids, stopped = sampling.stop_words, list[int](), False
        for id in self._script(list(slot.ids), slot.seed, slot.turn)[: sampling.max_tokens]:
            ids.append(id)
            stopped = id in sampling.stop_ids or (words is not None and words.may_end(id) and words.hit(ids))
            if stopped:
                break
        slot.ids.extend(ids)
        slot.turn += 1
        return Generation(ids, [0.0] * len(ids), self.version, stopped)

    def close(self, slots: list[int]) -> None:
        """Forget slots."""
        for slot in slots:
            self._slots.pop(slot, None)


class SimulatedEngine(ScriptedEngine):
    """Plays `script` at `pace`, as a live engine (`LiveEngine`) whose thread sleeps between two ends of turns. Threads: any;
    each slot has one turn at a time."""

    def __init__(self, script: Script, pace: Pace, version: int = 0) -> None:
        super().__init__(script, version)
        self._moved = threading.Condition(threading.RLock())
        self._turns: dict[int, _Turn] = {}
        self._decoding: Decoding[_Turn] = Decoding(pace, lambda turn: turn.marks.append((0, self.version)))
        self._over = False
        self._thread = threading.Thread(target=self._run, name="simulated-engine", daemon=True)
        self._thread.start()

    def load(self, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        """Take the version; without `keep` every slot is forgotten and turns under way are aborted."""
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
        """One turn of one slot. The future raises Fault `aborted` when its slot or the engine ends before it."""
        with self._moved:
            if slot in self._turns:
                raise InvariantError(f"slot {slot} has a turn under way")
            check_step([slot], [pending], self._slots)
            turn = self._turns[slot] = _Turn(slot, self._say(self._slots[slot], pending, sampling))
            if self._over:
                self._abort([slot])
            else:
                self._decoding.add(self._end_turns(), len(turn.said.ids), turn)
                self._moved.notify_all()
            return turn.future

    step = FreeEngine.step

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
                    self._moved.wait(None if left == float("inf") else left)
                self._end_turns()

    def _end_turns(self) -> float:
        """Give what has ended by now, which it returns."""
        now = time.monotonic()
        for turn in self._decoding.advance(now):
            del self._turns[turn.slot]
            turn.said.version, turn.said.versions = drawn_by(turn.marks, len(turn.said.ids))
            turn.future.set_result(turn.said)
        return now
