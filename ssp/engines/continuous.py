"""The embedded engine, free-running: each slot's turn comes and goes by itself, all turns under way share each forward.

Owns the thread that advances the batch; between two tokens it admits new turns, ends aborted ones and takes new weights.
Promises a live engine (`LiveEngine`) whose slots keep their keys and values between turns, and that an error of the thread
reaches everybody who waits. Which turns share a forward depends on when they come, so results are equal to the lock-step
engine's up to rounding, and not the same bits twice (law 7). Refuses to know text.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ssp.base.errors import Fault, InputError, InvariantError
from ssp.engines.base import Generation, Sampling, check_step
from ssp.engines.folder import read_weights
from ssp.engines.orders import OrderThread
from ssp.engines.rows import Rows
from ssp.engines.turns import Turn, Turns


class ContinuousEngine:
    """`model`, `dtype`, `prefix_cache`: as of `TorchEngine`. Threads: any; each slot has one turn at a time."""

    def __init__(
        self,
        model: str | Path | Mapping[str, Any],
        dtype: str = "float32",
        version: int = 0,
        prefix_cache: bool = True,
    ) -> None:
        self._batch = _Batch(Rows(model, dtype, prefix_cache), version)
        self.version = version
        self._gate = threading.Lock()
        self._open: set[int] = set()
        self._next = 0
        batch = self._batch
        self._thread = OrderThread("torch-engine", batch.busy, batch.round, batch.end)
        weakref.finalize(self, self._thread.leave)
        if not isinstance(model, Mapping):
            self.load(read_weights(Path(model)), version)

    def load(self, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        """Replace the weights. Without `keep` every slot is forgotten and turns under way are aborted; with it they go on.

        InputError when a parameter is missing or has another shape.
        """
        model = self._batch.rows.decoder(weights)
        with self._gate:  # a slot that opens meanwhile opens after the load
            self._thread.ask(lambda: self._batch.replace(model, version, keep))
            self.version = version
            if not keep:
                self._open.clear()

    def differs(self, weights: dict[str, np.ndarray]) -> str:
        """The first pack of weights that is not the one that `weights` give; "" for none."""
        model = self._batch.rows.model
        return "all of it" if model is None else model.differs(weights)

    def open(self, seeds: list[int]) -> list[int]:
        """New empty slots, one a seed (any integer; taken modulo 2**64)."""
        with self._gate:
            slots = list(range(self._next, self._next + len(seeds)))
            self._next += len(seeds)
            self._open.update(slots)
            self._batch.order(self._thread, lambda: self._batch.rows.open(slots, seeds))
        return slots

    def close(self, slots: list[int]) -> None:
        """Forget slots; a turn under way there is aborted."""
        with self._gate:
            self._open.difference_update(slots)
            self._batch.order(self._thread, lambda: self._batch.close(slots))

    def submit(self, slot: int, pending: list[int], sampling: Sampling) -> Future[Generation]:
        """One turn of one slot. The future raises Fault `engine_nonfinite` when the model's output is not a number,
        `aborted` when the turn was; an error of the engine's thread as it is."""
        future: Future[Generation] = Future()
        with self._gate:
            check_step([slot], [pending], self._open)
            self._batch.claim(slot, future)
            self._thread.order(lambda over: self._batch.admit(slot, pending, sampling, future, over))
        return future

    def step(self, slots: list[int], pending: list[list[int]], samplings: Sampling) -> list[Generation]:
        """One turn of each slot, all at once; waits for all, then raises the first error."""
        check_step(slots, pending, self._open)
        futures = [self.submit(slot, ids, samplings) for slot, ids in zip(slots, pending, strict=True)]
        return [future.result() for future in futures]

    def abort(self, slots: list[int]) -> None:
        """End the turns of these slots: their futures raise Fault `aborted`, and each slot is as it was before the turn."""
        self._thread.ask(lambda: self._batch.abort(slots))

    def stop(self) -> None:
        """End the thread; turns under way are aborted."""
        self._thread.stop()


class _Batch:
    """What the thread works on. Everything but `claim` and `order` runs on the thread."""

    def __init__(self, rows: Rows, version: int) -> None:
        self.rows, self.version = rows, version
        self._turns = Turns(rows)
        self._new: list[Turn] = []
        self._futures: dict[int, Future[Generation]] = {}
        self._error: BaseException | None = None
        self._threads = torch.get_num_threads()

    def claim(self, slot: int, future: Future[Generation]) -> None:
        """The slot's turn is this one's. InvariantError when it has one."""
        if slot in self._futures:
            raise InvariantError(f"slot {slot} has a turn under way")
        self._futures[slot] = future

    def order(self, thread: OrderThread, work: Callable[[], None]) -> None:
        """Have `work()` done by the thread, if it still works."""
        thread.order(lambda over: self._watched(work) if over is None else None)

    def _watched(self, work: Callable[[], None]) -> None:
        """Keep the error that ends the thread, for those who wait."""
        try:
            work()
        except BaseException as error:
            self._error = error
            raise

    def busy(self) -> bool:
        """Whether a turn is under way."""
        return bool(self._new) or bool(self._turns)

    def admit(
        self, slot: int, pending: list[int], sampling: Sampling, future: Future[Generation], over: Fault | None
    ) -> None:
        """Queue a turn for the next round, or end it at once: the thread is `over`, the slot gone, its context full."""
        if future.done():
            return
        if over is not None:
            self._fail(slot, self._error or over)
        elif slot not in self.rows.row:
            self._fail(slot, Fault("aborted", "its slot was closed, or forgotten by load()"))
        elif self.rows.model is None:
            rule = "the engine needs weights before its first step"
            self._fail(slot, InputError(rule, "none", "call load(weights, version)"))
        elif not pending and self.rows.mark(slot).empty:
            rule = "a new slot needs at least one token before it can sample"
            self._fail(slot, InputError(rule, "no tokens", "give a prompt"))
        elif (room := self.rows.room(slot, pending, sampling.max_tokens)) > 0:
            self._new.append(Turn(slot, pending, sampling, room, self.version))
        else:
            self._give(slot, Generation([], [], self.version, False))

    def round(self) -> None:
        """Admit what came, and advance all by one token."""
        if torch.get_num_threads() != self._threads:  # a thread's own setting
            torch.set_num_threads(self._threads)
        self._watched(self._advance)

    @torch.inference_mode()
    def _advance(self) -> None:
        if self._new:
            new, self._new = self._new, []
            self._turns.add(new)
        for turn, generation in self._turns.advance():
            if all(map(math.isfinite, generation.logprobs)):
                self._give(turn.slot, generation)
            else:
                self.rows.blank(turn.slot)
                what = f"version {generation.version} gives log-probs that are not numbers"
                self._fail(turn.slot, Fault("engine_nonfinite", what))

    def replace(self, model: Any, version: int, keep: bool) -> None:
        """Compute with `model` from now on."""
        if not keep:
            self.abort(list(self._futures))
        self.rows.replace(model, keep)
        self.version = version
        for turn in self._new:
            turn.version = version
        self._turns.switch(version)

    def close(self, slots: list[int]) -> None:
        """Abort and forget."""
        self.abort(slots)
        self.rows.close(slots)

    def abort(self, slots: list[int]) -> None:
        """Fault `aborted` for the turns of `slots`."""
        gone = set(slots)
        self._turns.drop(gone)
        self._new = [turn for turn in self._new if turn.slot not in gone]
        for slot in gone & set(self._futures):
            self._fail(slot, Fault("aborted", "the turn was aborted"))

    def end(self, fault: Fault) -> None:
        """Tell everybody who waits, and give the memory back."""
        for slot in list(self._futures):
            self._fail(slot, self._error or fault)
        self._turns.clear()
        self.rows.wipe()
        self.rows.model = None

    def _give(self, slot: int, generation: Generation) -> None:
        self._futures.pop(slot).set_result(generation)

    def _fail(self, slot: int, error: BaseException) -> None:
        self._futures.pop(slot).set_exception(error)
