"""Engines without a model: they play a script, in no time or in the time that a model of costs gives.

Owns the ids of each slot, and the thread that waits until the next turn ends. Promises the engine interface with the
script's ids and log-prob 0.0 for each of them (a script is certain of what it says); and of the one that takes time a live
engine (`LiveEngine`) that sleeps between two ends of turns, whatever their number of tokens.
Refuses to know what the ids mean.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
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
    future: Future[Generation]
    before: _Slot
    marks: list[tuple[int, int]] = field(default_factory=list)
    """(tokens drawn before, version that draws from there on)."""


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

    def _say(self, slot: _Slot, pending: list[int], samplings: Sampling) -> Generation:
        slot.ids.extend(pending)
        ids = list(self._script(list(slot.ids), slot.seed, slot.turn))[: samplings.max_tokens]
        words = samplings.stop_words
        end = next(
            (
                at
                for at, id in enumerate(ids)
                if id in samplings.stop_ids
                or (words is not None and words.may_end(id) and words.hit(ids[max(0, at + 1 - words.window) : at + 1]))
            ),
            None,
        )
        ids = ids if end is None else ids[: end + 1]
        slot.ids.extend(ids)
        slot.turn += 1
        entropies = [0.0] * len(ids) if samplings.entropy else None
        return Generation(ids, [0.0] * len(ids), self.version, end is not None, entropies)

    def close(self, slots: list[int]) -> None:
        """Forget slots."""
        for slot in slots:
            self._slots.pop(slot, None)


class SimulatedEngine(ScriptedEngine):
    """Plays `script` at `pace`. Threads: any; each slot has one turn at a time."""

    def __init__(self, script: Script, pace: Pace, version: int = 0) -> None:
        super().__init__(script, version)
        self._clock = _Clock(pace, version)
        weakref.finalize(self, self._clock.stop)

    def load(self, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        """Take the version; without `keep` every slot is forgotten and turns under way are aborted. The weights are not
        looked at."""
        with self._clock.moved:
            self.version = version
            self._clock.switch(version)
            if not keep:
                self._clock.abort(list(self._clock.turns), "load() forgot its slot")
                self._slots.clear()

    def open(self, seeds: list[int]) -> list[int]:
        """New empty slots."""
        with self._clock.moved:
            return super().open(seeds)

    def close(self, slots: list[int]) -> None:
        """Forget slots; a turn under way there is aborted."""
        with self._clock.moved:
            self._clock.abort(slots, "its slot was closed")
            super().close(slots)

    def submit(self, slot: int, pending: list[int], sampling: Sampling) -> Future[Generation]:
        """One turn of one slot. The future raises Fault `aborted` when the turn, its slot or the engine ends before it."""
        with self._clock.moved:
            if slot in self._clock.turns:
                raise InvariantError(f"slot {slot} has a turn under way")
            check_step([slot], [pending], self._slots)
            held = self._slots[slot]
            before = replace(held, ids=list(held.ids))
            return self._clock.begin(_Turn(slot, self._say(held, pending, sampling), Future(), before))

    step = FreeEngine.step

    def abort(self, slots: list[int]) -> None:
        """End the turns of these slots: their futures raise Fault `aborted`, and each slot is as it was before the turn."""
        with self._clock.moved:
            for turn in self._clock.abort(slots, "the turn was aborted"):
                self._slots[turn.slot] = turn.before

    def stop(self) -> None:
        """End the thread; turns under way are aborted."""
        self._clock.stop()


class _Clock:
    """What the thread works on, guarded by `moved`. It does not hold the engine, so that one nobody uses ends."""

    def __init__(self, pace: Pace, version: int) -> None:
        self.version = version
        self.moved = threading.Condition(threading.RLock())
        self.turns: dict[int, _Turn] = {}
        self._decoding: Decoding[_Turn] = Decoding(pace, lambda turn: turn.marks.append((0, self.version)))
        self._over = False
        self._thread: threading.Thread | None = None

    def begin(self, turn: _Turn) -> Future[Generation]:
        """The future of a turn."""
        self.turns[turn.slot] = turn
        if self._over:
            self.abort([turn.slot], "the engine was stopped")
            return turn.future
        now = time.monotonic()
        self._end(now)
        self._decoding.add(now, len(turn.said.ids), turn)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="simulated-engine", daemon=True)
            self._thread.start()
        self.moved.notify_all()
        return turn.future

    def switch(self, version: int) -> None:
        """Tokens from here on are of `version`."""
        self._end(time.monotonic())
        self.version = version
        for turn in self.turns.values():
            if turn.marks:
                turn.marks.append((self._decoding.drawn(turn), version))

    def abort(self, slots: list[int], why: str) -> list[_Turn]:
        """End the turns of `slots`; gives those that there were."""
        found = [self.turns.pop(slot) for slot in slots if slot in self.turns]
        for turn in found:
            self._decoding.drop(turn)
            turn.future.set_exception(Fault("aborted", why))
        return found

    def stop(self) -> None:
        """End the thread."""
        with self.moved:
            self._over = True
            self.abort(list(self.turns), "the engine was stopped")
            self.moved.notify_all()

    def _run(self) -> None:
        with self.moved:
            while not self._over:
                left = self._decoding.next() - time.monotonic()
                if left > 0:
                    self.moved.wait(None if left == float("inf") else left)
                self._end(time.monotonic())

    def _end(self, now: float) -> None:
        """Give what ended up to now."""
        for turn in self._decoding.advance(now):
            del self.turns[turn.slot]
            turn.said.version, turn.said.versions = drawn_by(turn.marks, len(turn.said.ids))
            turn.future.set_result(turn.said)
