"""The embedded torch engine: many slots, one KV cache, exact log-probs.

In lock step a call takes its turns in and runs until none is left: the same calls give the same
bits. Free-running, the engine has a thread that runs as long as there is a turn, and takes orders
between two tokens. Which turns share a forward then depends on when they come, so that results are
equal up to rounding only, and not the same bits twice (law 7)."""

import itertools
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ssp.base import devices
from ssp.base.errors import Fault, InputError, InvariantError
from ssp.config.role import EngineConfig
from ssp.engines.base import Generation, LiveEngine, Sampling, check_step
from ssp.engines.decoder import Decoder
from ssp.engines.folder import ModelFolder
from ssp.engines.orders import OrderThread
from ssp.engines.rows import Rows
from ssp.engines.turns import Turn, Turns


class TorchEngine:
    """Generates in lock step, deterministic on one build and thread count. `model`: an HF folder,
    or its configuration (then `load` comes first); InputError for another architecture, or a broken
    folder. `prefix_cache`: a prompt that several slots share is read once. `device`: see
    `ssp.base.devices`."""

    def __init__(
        self,
        model: str | Path | Mapping[str, Any],
        dtype: str = "float32",
        prefix_cache: bool = True,
        device: str = "auto",
    ) -> None:
        self.version = 0
        folder = None
        if isinstance(model, Mapping):
            config = model
        else:
            folder = ModelFolder(Path(model))
            config = folder.config
        self.rows = Rows(config, dtype, prefix_cache, devices.find(device))
        self._turns = Turns(self.rows)
        self._new: list[Turn] = []
        self._futures: dict[int, Future[Generation]] = {}
        self._numbers = itertools.count()
        if folder is not None:
            self.load(folder.weights(), 0)

    def load(self, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        """See `Engine.load`. InputError when a parameter is missing or has another shape."""
        if keep:
            raise InvariantError("a lock-step engine has no turns in flight")
        self.replace(self.decoder(weights), version, keep)

    def decoder(self, weights: dict[str, np.ndarray]) -> Decoder:
        """A decoder of these weights. InputError when a parameter is missing or has another
        shape."""
        return Decoder(self.rows.shape, weights, self.rows.dtype, self.rows.device)

    def open(self, seeds: list[int]) -> list[int]:
        """New empty slots, one a seed (any integer; taken modulo 2**64)."""
        slots = [next(self._numbers) for _ in seeds]
        self.rows.open(slots, seeds)
        return slots

    def close(self, slots: list[int]) -> None:
        """Forget slots, and abort their turns; closed or forgotten ones are fine."""
        self._abort(slots)
        self.rows.close(slots)

    def step(
        self, slots: list[int], pending: list[list[int]], samplings: Sampling
    ) -> list[Generation]:
        """Feed `pending`, then sample. Fault `engine_nonfinite` when the model's output is not a
        number: the slot is forgotten. Where pending ids leave no room in the context, an empty
        generation that is not stopped."""
        check_step(slots, pending, self.rows.row)
        futures = [self.claim(slot) for slot in slots]
        for slot, ids, future in zip(slots, pending, futures, strict=True):
            self.admit(slot, ids, samplings, future)
        while self.busy():
            self.advance()
        return [future.result() for future in futures]

    def busy(self) -> bool:
        """Whether a turn is under way."""
        return bool(self._new) or bool(self._turns)

    def claim(self, slot: int) -> Future[Generation]:
        """The future of the slot's next turn. InvariantError when it has one under way."""
        if slot in self._futures:
            raise InvariantError(f"slot {slot} has a turn under way")
        self._futures[slot] = Future()
        return self._futures[slot]

    def admit(
        self,
        slot: int,
        pending: list[int],
        sampling: Sampling,
        future: Future[Generation],
        over: Fault | None = None,
    ) -> None:
        """Take a claimed turn in, or end it at once, where the thread is `over`, the slot gone, or
        its context full."""
        if future.done():
            return
        if over is not None:
            return self._fail(slot, over.__cause__ or over)
        if slot not in self.rows.row:
            fault = Fault("aborted", "its slot was closed, or forgotten by load()")
            return self._fail(slot, fault)
        shape = self.rows.shape
        filled = self.rows.filled(slot)
        if self.rows.model is None or not (pending or filled):
            needs = "weights before its first step, and a new slot a prompt of at least one token"
            step = "call load(weights, version), and give a prompt"
            return self._fail(slot, InputError(f"an engine needs {needs}", "none", step))
        highest = max(pending, default=0)
        if highest >= shape.vocab:
            rule = f"ids are below the vocabulary's size, {shape.vocab}"
            step = "take the tokenizer that belongs to the model"
            return self._fail(slot, InputError(rule, highest, step))
        room = shape.context - filled - len(pending)
        if room > 0:
            budget = min(room, sampling.max_tokens)
            self._new.append(Turn(slot, pending, sampling, budget, self.version))
        else:
            self._futures.pop(slot).set_result(Generation([], [], self.version, False))

    @torch.inference_mode()
    def advance(self) -> None:
        """Start the turns that came, and advance all by one token."""
        if self._new:
            new = self._new
            self._new = []
            self._turns.add(new)
        for turn, generation in self._turns.advance():
            if all(map(math.isfinite, generation.logprobs)):
                self._futures.pop(turn.slot).set_result(generation)
            else:
                # no dead row stays in the batch, which would write into the clean one
                self._turns.drop(set())
                self.rows.blank(turn.slot)
                what = f"version {generation.version} gives log-probs that are not numbers"
                self._fail(turn.slot, Fault("engine_nonfinite", what))

    def replace(self, model: Decoder, version: int, keep: bool) -> None:
        """Compute with `model` from now on. Without `keep` every slot is forgotten and turns under
        way are aborted."""
        if not keep:
            self._abort(list(self._futures))
        self.rows.replace(model, keep)
        devices.give_back()
        self.version = version
        for turn in self._new:
            turn.version = version
        self._turns.switch(version)

    def _abort(self, slots: Sequence[int]) -> None:
        aborted = set(slots) & self._futures.keys()
        if not aborted:
            return
        self._turns.drop(aborted)
        begun = aborted - {turn.slot for turn in self._new}
        self._new = [turn for turn in self._new if turn.slot not in aborted]
        for slot in begun & self.rows.row.keys():
            # its keys may be no numbers, which a later row's mask does not hide
            self.rows.blank(slot)
        for slot in aborted:
            self._fail(slot, Fault("aborted", "the turn was aborted"))

    def end(self, over: Fault) -> None:
        """Fail every turn that somebody waits for."""
        for slot in list(self._futures):
            self._fail(slot, over.__cause__ or over)

    def _fail(self, slot: int, error: BaseException) -> None:
        self._futures.pop(slot).set_exception(error)


def made(config: EngineConfig, folder: Path, sleeps: bool) -> "TorchEngine | ContinuousEngine":
    """The engine that the settings name, with the model of `folder`; it takes no turns."""
    kind = ContinuousEngine if config.continuous else TorchEngine
    return kind(folder, config.dtype, config.prefix_cache, config.device)


class ContinuousEngine(LiveEngine):
    """A `TorchEngine` on a thread of its own (`LiveEngine`), called from any thread, with one turn
    a slot at a time. An error of its thread reaches everybody who waits, as it is."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """As of `TorchEngine`."""
        self._inner = inner = TorchEngine(*args, **options)
        self.version = 0
        self._thread = OrderThread("torch-engine", inner.busy, inner.advance, inner.end)
        threads = torch.get_num_threads()  # a thread's own setting
        self._thread.order(lambda over: torch.set_num_threads(threads))

    def load(self, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        """See `Engine.load`."""
        model = self._inner.decoder(weights)
        self._thread.ask(lambda: self._inner.replace(model, version, keep))
        self.version = version

    def open(self, seeds: list[int]) -> list[int]:
        """New empty slots, one a seed (any integer; taken modulo 2**64)."""
        return self._thread.ask(lambda: self._inner.open(seeds))

    def close(self, slots: list[int]) -> None:
        """Forget slots; a turn under way there is aborted."""
        self._thread.order(lambda over: None if over else self._inner.close(slots))

    def submit(self, slot: int, pending: list[int], sampling: Sampling) -> Future[Generation]:
        """See `FreeEngine.submit`. Fault `engine_nonfinite` when the model's output is not a
        number."""
        inner = self._inner
        check_step([slot], [pending], inner.rows.row)
        future = inner.claim(slot)
        self._thread.order(lambda over: inner.admit(slot, pending, sampling, future, over))
        return future

    def stop(self) -> None:
        """End the thread; turns under way are aborted."""
        self._thread.stop()
