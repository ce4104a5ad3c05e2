"""An engine without a model whose turns take time: for tests and benchmarks of everything around engines.

Owns the thread that waits until the next turn ends. What is said is a script's (`ScriptedEngine`); how long it takes
follows the cost model of `ssp.engines.decoding`. Promises a live engine (`LiveEngine`) that sleeps between two ends of
turns, whatever their number of tokens. Refuses to know what the ids mean.
"""

from __future__ import annotations

import threading
import time
import weakref
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ssp.base.errors import Fault, InvariantError
from ssp.engines.base import Generation, Sampling, check_step
from ssp.engines.decoding import Decoding, Pace
from ssp.engines.scripted import Script, ScriptedEngine

if TYPE_CHECKING:
    import numpy as np


@dataclass(eq=False)
class _Turn:
    slot: int
    said: Generation
    read: int
    future: Future[Generation]
    marks: list[tuple[int, int]] = field(default_factory=list)
    """(tokens drawn before, version that draws from there on)."""


class SimulatedEngine:
    """Plays `script` at `pace`. Threads: any; each slot has one turn at a time."""

    def __init__(self, script: Script, pace: Pace, version: int = 0) -> None:
        self.version = version
        self._clock = _Clock(pace, version)
        self._script = ScriptedEngine(script, version)
        weakref.finalize(self, self._clock.stop)

    def load(self, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        """Take the version; without `keep` every slot is forgotten and turns under way are aborted. The weights are not
        looked at."""
        with self._clock.moved:
            self.version = version
            self._clock.switch(version)
            if not keep:
                self._clock.abort(list(self._clock.turns), "load() forgot its slot")
                self._script.load({}, version)

    def open(self, seeds: list[int]) -> list[int]:
        """New empty slots."""
        with self._clock.moved:
            return self._script.open(seeds)

    def close(self, slots: list[int]) -> None:
        """Forget slots; a turn under way there is aborted."""
        with self._clock.moved:
            self._clock.abort(slots, "its slot was closed")
            self._script.close(slots)

    def submit(self, slot: int, pending: list[int], sampling: Sampling) -> Future[Generation]:
        """One turn of one slot. The future raises Fault `aborted` when the turn, its slot or the engine ends before it."""
        with self._clock.moved:
            if slot in self._clock.turns:
                raise InvariantError(f"slot {slot} has a turn under way")
            (said,) = self._script.step([slot], [pending], sampling)
            return self._clock.begin(slot, said, len(pending))

    def step(self, slots: list[int], pending: list[list[int]], samplings: Sampling) -> list[Generation]:
        """One turn of each slot, all at once; waits for all."""
        check_step(slots, pending, set(slots))
        futures = [self.submit(slot, ids, samplings) for slot, ids in zip(slots, pending, strict=True)]
        return [future.result() for future in futures]

    def abort(self, slots: list[int]) -> None:
        """End the turns of these slots: their futures raise Fault `aborted`, and each slot is as it was before the turn."""
        with self._clock.moved:
            for turn in self._clock.abort(slots, "the turn was aborted"):
                self._script.take_back(turn.slot, turn.read + len(turn.said.ids))

    def stop(self) -> None:
        """End the thread; turns under way are aborted."""
        self._clock.stop()


class _Clock:
    """What the thread works on, guarded by `moved`. It does not hold the engine, so that one nobody uses ends."""

    def __init__(self, pace: Pace, version: int) -> None:
        self.version = version
        self.moved = threading.Condition(threading.RLock())
        self.turns: dict[int, _Turn] = {}
        self._decoding: Decoding[_Turn] = Decoding(pace, self._started)
        self._over = False
        self._thread: threading.Thread | None = None

    def begin(self, slot: int, said: Generation, read: int) -> Future[Generation]:
        """The future of a turn that read so many ids and will have said these."""
        turn = self.turns[slot] = _Turn(slot, said, read, Future())
        if self._over:
            self.abort([slot], "the engine was stopped")
            return turn.future
        now = time.monotonic()
        self._end(now)
        self._decoding.add(now, len(said.ids), turn)
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

    def _started(self, turn: _Turn) -> None:
        turn.marks.append((0, self.version))

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
            said = replace(turn.said, version=turn.marks[-1][1])
            if len(turn.marks) > 1:
                ends = [at for at, _ in turn.marks[1:]] + [len(said.ids)]
                said.versions = [
                    version for (at, version), end in zip(turn.marks, ends, strict=True) for _ in range(at, end)
                ]
            turn.future.set_result(said)
