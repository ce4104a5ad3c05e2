"""The vLLM engine: paged attention and continuous batching on CPU and GPUs, behind the engine
interface.

Promises token in, token out; a version on every token; that nothing computed by one version's
weights is found by another's (caches carry the load's number as salt, and `load` empties them);
that adapters of roles on one base have slots, versions and caches of their own (`faces`); and that
a failure of vLLM is a Fault of the turns that it hit, never a value. Equal to the other engines in
distribution only: its draws depend on the batch (law 7). Refuses to know text."""

from __future__ import annotations

import atexit
import gc
import itertools
import math
import os
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ssp.base.errors import Fault, InputError, InvariantError, hold
from ssp.base.seeds import derive
from ssp.config.role import EngineConfig, LoraConfig
from ssp.engines.base import Generation, LiveEngine, Sampling, check_step
from ssp.engines.folder import ModelFolder
from ssp.engines.orders import OrderThread
from ssp.engines.vllm import setup, worker

_LIVE: weakref.WeakSet[VllmEngine] = weakref.WeakSet()
"""Engines of this process: they share vLLM's global process groups, which the last one takes
down."""
_ENDED: list[Any] = []
"""vLLM's clients that ended before others did: collected, they would take down what the others
use."""


class TokenSource(Protocol):
    """Whose weights a slot uses: the engine, or one of its faces. `lora`: vLLM's name for its
    adapter."""

    version: int
    lora: Any


@dataclass
class _Slot:
    """`source`: whose weights it uses; `salt`: of its cache, where no block of another load is
    found under it."""

    ids: list[int]
    seed: int
    source: TokenSource
    salt: str
    turns: int = 0
    turn: _VllmTurn | None = None


@dataclass(eq=False)
class _VllmTurn:
    name: str
    slot: _Slot
    sampling: Sampling
    most: int
    seed: int
    future: Future[Generation] = field(default_factory=Future)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)


class VllmEngine(LiveEngine):
    """Generates with vLLM in this process; with `tensor_parallel` above 1 its workers are processes
    of their own. With room for `adapters` it itself neither loads nor generates (`faces`).
    InputError when vLLM is not installed or refuses it."""

    lora: Any = None
    """The adapter of what it generates by itself: none."""

    def __init__(
        self,
        model_dir: str | Path,
        config: EngineConfig,
        sleeps: bool = False,
        adapters: Sequence[LoraConfig] = (),
    ) -> None:
        folder, self._shared, self.version = ModelFolder(Path(model_dir)), bool(adapters), 0
        self.shapes = folder.shapes
        """Of its parameters, by Hugging Face name."""
        self._ranks, self._sleeps, self._asleep = config.tensor_parallel, sleeps, False
        with folder.plain() as plain:
            self._vllm = setup.start(plain, config, sleeps, adapters)
        self._context: int = self._vllm.model_config.max_model_len
        self._vocabulary: int = self._vllm.model_config.get_vocab_size()
        self._slots: dict[int, _Slot] = {}
        self._numbers, self._loads = itertools.count(), 0
        self._turns: dict[str, _VllmTurn] = {}
        self._spoilt = False
        _LIVE.add(self)
        self._thread = OrderThread("vllm-step", lambda: bool(self._turns), self._advance, self._end)
        atexit.register(_stop, weakref.ref(self))

    def load(self, weights: Mapping[str, np.ndarray], version: int, keep: bool = False) -> None:
        """See `Engine.load`. InputError for a missing or misshapen weight."""
        if self._shared:
            raise InvariantError("the base of adapters stays as it is")
        found = {name: tuple(array.shape) for name, array in weights.items()}
        if found != self.shapes:  # of missing ones vLLM itself only warns
            name = min(set(found.items()) ^ set(self.shapes.items()))[0]
            rule = f"weights hold {name} of shape {self.shapes.get(name, 'none')}"
            raise InputError(rule, found.get(name, "missing"), "publish weights of this model")
        self._thread.ask(lambda: self._load(weights, version, keep))

    def adopt(self, face: TokenSource, role: str, files: Mapping[str, Any], version: int) -> None:
        """Have `face` generate with the adapter in `files` (what a folder in peft's layout holds),
        and forget its slots."""
        self._thread.ask(lambda: self._adopt(face, role, files, version))

    def open(self, seeds: list[int], face: TokenSource | None = None) -> list[int]:
        """New empty slots, one a seed; of a face, with its adapter."""
        source: TokenSource = face or self
        # vLLM's CPU kernels take another adapter for none (0.32)
        if self._shared and source.lora is None:
            raise InvariantError("who generates on a shared base has an adapter")
        salt = str(self._loads) if face is None else face.lora.lora_name
        # Faces are used by threads of their own: each number is given out once.
        fresh = {next(self._numbers): _Slot([], seed, source, salt) for seed in seeds}
        self._slots.update(fresh)
        return list(fresh)

    def close(self, slots: list[int]) -> None:
        """See `Engine.close`."""
        states = [state for slot in slots if (state := self._slots.pop(slot, None))]
        turns = [state.turn for state in states if state.turn is not None]
        if turns:
            self._thread.ask(lambda: self._abort(turns))

    def submit(self, slot: int, pending: list[int], sampling: Sampling) -> Future[Generation]:
        """One turn of one slot; see `FreeEngine.submit`. The whole context goes along: the prefix
        cache knows it."""
        check_step([slot], [pending], self._slots)
        state = self._slots[slot]
        if state.turn is not None:
            raise InvariantError(f"slot {slot} has a turn under way")
        if pending and not 0 <= min(pending) <= max(pending) < self._vocabulary:
            rule = f"ids lie in the model's vocabulary of {self._vocabulary}"
            raise InputError(
                rule, f"{min(pending)} to {max(pending)}", "use the tokenizer of this model"
            )
        state.ids.extend(pending)
        hold(
            state.ids,
            "a new slot needs at least one token before it can sample",
            "no tokens",
            "give a prompt",
        )
        most = min(sampling.max_tokens, self._context - len(state.ids))
        turn = _VllmTurn(
            f"{slot}.{state.turns}", state, sampling, most, derive(state.seed, "turn", state.turns)
        )
        if most <= 0:
            turn.future.set_result(Generation([], [], state.source.version, False))
            return turn.future
        state.turns += 1
        state.turn = turn
        self._thread.order(lambda over: self._begin(turn, over))
        return turn.future

    def sleep(self) -> None:
        """See `Sleeper`. On a CPU it empties its caches and takes no turns; on GPUs it was never
        run yet. InputError unless the engine was made with `sleeps`."""
        rule = "an engine sleeps and wakes where it shares GPUs with learners (placement.layout)"
        hold(self._sleeps, rule, "an engine that stays awake", "set placement.layout=separate")
        self._thread.ask(self._sleep)

    def wake(self) -> None:
        """Take the memory again: weights as they were, caches empty."""
        self._thread.ask(self._wake)

    def stop(self) -> None:
        """End the thread, the worker processes and the turns under way; the memory is free for
        others."""
        self._thread.stop()

    # What follows runs on the step thread.

    def _advance(self) -> None:
        for output in self._vllm.step():
            self._take(output)

    def _begin(self, turn: _VllmTurn, over: Fault | None) -> None:
        if over is not None or self._asleep:
            return self._fail(turn, over or Fault("engine_refused", "the engine sleeps"))
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        try:
            params = SamplingParams(
                temperature=turn.sampling.temperature,
                max_tokens=turn.most,
                stop_token_ids=list(turn.sampling.stop_ids),
                ignore_eos=True,  # which ids end a turn is `stop_ids` alone
                logprobs=0,
                seed=turn.seed,
                detokenize=False,
                output_kind=RequestOutputKind.DELTA,
            )
            prompt = {"prompt_token_ids": list(turn.slot.ids), "cache_salt": turn.slot.salt}
            self._vllm.add_request(turn.name, prompt, params, lora_request=turn.slot.source.lora)
        except ValueError as error:
            return self._fail(
                turn, Fault("engine_refused", f"{type(error).__name__}: {error}"[:500])
            )
        self._turns[turn.name] = turn

    def _take(self, output: Any) -> None:
        """New tokens of one turn; ends it at a stop string, which vLLM does not see without
        text."""
        turn = self._turns.get(output.request_id)
        if turn is None:
            return
        words, made, version = turn.sampling.stop_words, output.outputs[0], turn.slot.source.version
        for id_, logprobs in zip(made.token_ids, made.logprobs or [], strict=True):
            logprob = logprobs[id_].logprob
            if not math.isfinite(logprob):
                self._spoilt = True
                self._vllm.abort_request([turn.name])
                detail = f"version {version} gives log-probs that are not numbers"
                return self._fail(turn, Fault("engine_nonfinite", detail))
            turn.ids.append(id_)
            turn.logprobs.append(logprob)
            turn.versions.append(version)
            if words is not None and words.hit(turn.ids):
                if not output.finished:
                    self._vllm.abort_request([turn.name])
                return self._finish(turn, True)
        if output.finished:
            if made.finish_reason not in ("stop", "length"):
                return self._fail(
                    turn, Fault("engine_down", f"vLLM ended the turn: {made.finish_reason}")
                )
            self._finish(turn, made.finish_reason == "stop")

    def _finish(self, turn: _VllmTurn, stopped: bool) -> None:
        del self._turns[turn.name]
        turn.slot.ids.extend(turn.ids)
        turn.slot.turn = None
        several = turn.versions if len(set(turn.versions)) > 1 else None
        turn.future.set_result(
            Generation(turn.ids, turn.logprobs, turn.versions[-1], stopped, versions=several)
        )

    def _fail(self, turn: _VllmTurn, fault: Fault) -> None:
        self._turns.pop(turn.name, None)
        turn.slot.turn = None
        turn.future.set_exception(fault)

    def _abort(self, turns: list[_VllmTurn]) -> None:
        under_way = [turn for turn in turns if turn.name in self._turns]
        self._vllm.abort_request([turn.name for turn in under_way])
        for turn in under_way:
            self._fail(turn, Fault("aborted"))

    def _load(self, weights: Mapping[str, Any], version: int, keep: bool) -> None:
        if not keep:
            self._forget(self)
        if self._ranks == 1:
            self._vllm.collective_rpc(worker.reload, args=(weights,))
        else:
            arrays = {
                name: w.float().cpu().numpy() if hasattr(w, "cpu") else w
                for name, w in weights.items()
            }
            with worker.folder_of({"weights.safetensors": arrays}) as folder:
                self._vllm.collective_rpc(
                    worker.reload, args=(os.path.join(folder, "weights.safetensors"),)
                )
        self._loads += 1
        if not keep:
            self._empty_cache()
        self.version = version

    def _adopt(self, face: TokenSource, role: str, files: Mapping[str, Any], version: int) -> None:
        from vllm.lora.request import LoRARequest

        self._forget(face)
        old, face.lora = face.lora, None
        # first: vLLM has room for one adapter a face, and would drop the one used least lately
        if old is not None:
            self._vllm.remove_lora(old.lora_int_id)
        self._loads += 1
        with worker.folder_of(files) as folder:
            new = LoRARequest(f"{role}-{self._loads}", self._loads, folder)
            self._vllm.add_lora(new)
        face.lora, face.version = new, version
        # else other faces go on; blocks of before cannot be found under this name
        if not self._turns:
            self._empty_cache()

    def _forget(self, source: TokenSource) -> None:
        """Abort the turns and drop the slots that use the weights of `source`, before others
        come."""
        if self._asleep:
            raise InvariantError("an engine that sleeps takes no weights")
        self._abort([turn for turn in self._turns.values() if turn.slot.source is source])
        for number, slot in list(self._slots.items()):
            if slot.source is source:
                self._slots.pop(number, None)

    def _empty_cache(self) -> None:
        """Law 1 twice over: no block stays findable, though none could be found under the next
        load's salt."""
        if not self._vllm.reset_prefix_cache():
            raise InvariantError(
                "vLLM keeps blocks of its prefix cache although no turn is under way"
            )
        if self._spoilt:
            self._vllm.collective_rpc(worker.clear_cache)
            self._spoilt = False

    def _sleep(self) -> None:
        if self._turns:
            raise InvariantError(f"an engine falls asleep with {len(self._turns)} turns under way")
        if self._asleep:
            return
        self._asleep = True
        if setup.on_cpu():
            return self._empty_cache()
        before = self._vllm.collective_rpc(worker.device_bytes)
        self._vllm.sleep(level=1)
        after = self._vllm.collective_rpc(worker.device_bytes)
        worker.check_residual(
            [(held, now - free) for (free, held), (now, _) in zip(before, after, strict=True)]
        )

    def _wake(self) -> None:
        if self._asleep and not setup.on_cpu():
            self._vllm.wake_up()
        self._asleep = False

    def _end(self, over: Fault) -> None:
        """Fail what is under way; memory and processes back."""
        for turn in list(self._turns.values()):
            self._fail(turn, over)
        _LIVE.discard(self)
        client = self._vllm.engine_core
        if self._ranks == 1 and _LIVE:
            runner = self._vllm.model_executor.driver_worker.worker.model_runner
            runner.kv_caches.clear()
            runner.compilation_config.static_forward_context.clear()
            runner.model = None
            gc.unfreeze()
            _ENDED.append(client)
        else:
            client.shutdown()
        del self._vllm
        gc.collect()


def _stop(engine: weakref.ref[VllmEngine]) -> None:
    """At the end of the process: a thread in the middle of vLLM must not outlive the
    interpreter."""
    living = engine()
    if living is not None:
        living.stop()
