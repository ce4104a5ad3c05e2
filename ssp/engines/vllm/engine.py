"""The vLLM engine: paged attention and continuous batching on CPU and GPUs, behind the engine
interface.

Promises token in, token out; a version on every token; that no version reads what another one's
weights computed (caches carry the load's number as salt, and `load` empties them); that adapters of
roles on one base have slots, versions and caches of their own (`faces`); and that a failure of vLLM
is a Fault of the turns that it hit, never a value. Equal to the other engines in distribution only:
its draws depend on the batch (law 7). Refuses to know text."""

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
"""Engines of this process. They share vLLM's global process groups, which the last one takes
down."""
_ENDED: list[Any] = []
"""vLLM's clients that ended before others did. If they were collected, they would take down what
the others use."""


class TokenSource(Protocol):
    """Whose weights a slot uses: the engine, or one of its faces. `lora`: vLLM's name for its
    adapter."""

    version: int
    lora: Any


@dataclass
class _Slot:
    """`source`: whose weights it uses; `salt`: its name for the prefix cache, under which no block
    of another load is found."""

    ids: list[int]
    seed: int
    source: TokenSource
    salt: str
    turns: int = 0
    turn: _VllmTurn | None = None


@dataclass(eq=False)
class _VllmTurn:
    """A turn under way. `most`: tokens that it may sample."""

    name: str
    slot: _Slot
    sampling: Sampling
    most: int
    seed: int
    future: Future[Generation] = field(default_factory=Future)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)


def made(config: EngineConfig, folder: Path, sleeps: bool) -> VllmEngine:
    """The engine that the settings name, with the model of `folder`."""
    return VllmEngine(folder, config, sleeps)


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
        self.version = 0
        folder = ModelFolder(Path(model_dir))
        self.shapes = folder.shapes
        """Parameter by its Hugging Face name → its shape."""
        self._ranks = config.tensor_parallel
        self._shared = bool(adapters)
        self._sleeps = sleeps
        self._asleep = False
        with folder.plain() as plain:
            self._vllm = setup.start(plain, config, sleeps, adapters)
        self._context: int = self._vllm.model_config.max_model_len
        self._vocabulary: int = self._vllm.model_config.get_vocab_size()
        self._slots: dict[int, _Slot] = {}
        self._turns: dict[str, _VllmTurn] = {}
        self._numbers = itertools.count()
        self._loads = 0
        self._spoilt = False  # the KV cache may hold what is not a number
        _LIVE.add(self)
        self._thread = OrderThread("vllm-step", lambda: bool(self._turns), self._advance, self._end)
        atexit.register(_stop, weakref.ref(self))

    def load(self, weights: Mapping[str, np.ndarray], version: int, keep: bool = False) -> None:
        """See `Engine.load`. InputError for a missing or misshapen weight."""
        if self._shared:
            raise InvariantError("the base of adapters stays as it is")
        shapes = {name: tuple(array.shape) for name, array in weights.items()}
        if shapes != self.shapes:  # of missing ones vLLM itself only warns
            name, _ = min(shapes.items() ^ self.shapes.items())
            rule = f"weights hold {name} of shape {self.shapes.get(name, 'none')}"
            raise InputError(rule, shapes.get(name, "missing"), "publish weights of this model")
        self._thread.ask(lambda: self._load(weights, version, keep))

    def adopt(self, face: TokenSource, role: str, files: Mapping[str, Any], version: int) -> None:
        """Have `face` generate with the adapter in `files` (the files of a folder as peft writes
        it, by name), and forget its slots."""
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
        turns = []
        for slot in slots:
            state = self._slots.pop(slot, None)
            if state is not None and state.turn is not None:
                turns.append(state.turn)
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
            step = "use the tokenizer of this model"
            raise InputError(rule, f"{min(pending)} to {max(pending)}", step)
        state.ids.extend(pending)
        rule = "a new slot needs at least one token before it can sample"
        hold(state.ids, rule, "no tokens", "give a prompt")
        most = min(sampling.max_tokens, self._context - len(state.ids))
        seed = derive(state.seed, "turn", state.turns)
        turn = _VllmTurn(f"{slot}.{state.turns}", state, sampling, most, seed)
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
            turn = self._turns.get(output.request_id)
            if turn is not None:
                self._take(turn, output)

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
            why = f"{type(error).__name__}: {error}"[:500]
            return self._fail(turn, Fault("engine_refused", why))
        self._turns[turn.name] = turn

    def _take(self, turn: _VllmTurn, output: Any) -> None:
        """Take the new tokens of one turn; end it at a stop string, which vLLM does not see without
        text."""
        words = turn.sampling.stop_words
        version = turn.slot.source.version
        new = output.outputs[0]
        for id_, logprobs in zip(new.token_ids, new.logprobs or [], strict=True):
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
        if not output.finished:
            return
        if new.finish_reason in ("stop", "length"):
            self._finish(turn, new.finish_reason == "stop")
        else:
            fault = Fault("engine_down", f"vLLM ended the turn: {new.finish_reason}")
            self._fail(turn, fault)

    def _finish(self, turn: _VllmTurn, stopped: bool) -> None:
        del self._turns[turn.name]
        turn.slot.ids.extend(turn.ids)
        turn.slot.turn = None
        last = turn.versions[-1]
        versions = turn.versions if len(set(turn.versions)) > 1 else None
        turn.future.set_result(Generation(turn.ids, turn.logprobs, last, stopped, versions))

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
            name = "weights.safetensors"
            with worker.folder_of({name: weights}) as folder:
                self._vllm.collective_rpc(worker.reload, args=(os.path.join(folder, name),))
        self._loads += 1
        if not keep:
            self._empty_cache()
        self.version = version

    def _adopt(self, face: TokenSource, role: str, files: Mapping[str, Any], version: int) -> None:
        from vllm.lora.request import LoRARequest

        self._forget(face)
        old = face.lora
        face.lora = None
        if old is not None:
            # first: vLLM has room for one adapter a face, and would drop the one used least lately
            self._vllm.remove_lora(old.lora_int_id)
        self._loads += 1
        with worker.folder_of(files) as folder:
            new = LoRARequest(f"{role}-{self._loads}", self._loads, folder)
            self._vllm.add_lora(new)
        face.lora = new
        face.version = version
        if not self._turns:
            # while other faces have turns it stays: no older block can be found under this name
            self._empty_cache()

    def _forget(self, source: TokenSource) -> None:
        """Abort the turns and drop the slots that use the weights of `source`, before others
        come."""
        if self._asleep:
            raise InvariantError("an engine that sleeps takes no weights")
        self._abort([turn for turn in self._turns.values() if turn.slot.source is source])
        for number, slot in list(self._slots.items()):
            if slot.source is source:
                self._slots.pop(number, None)  # its own thread may have closed it

    def _empty_cache(self) -> None:
        """Keep law 1 twice over: no block can be found, though none is looked for under the next
        load's salt either."""
        if not self._vllm.reset_prefix_cache():
            what = "vLLM keeps blocks of its prefix cache although no turn is under way"
            raise InvariantError(what)
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
        pairs = zip(before, after, strict=True)
        worker.check_residual([(held, free - less) for (less, held), (free, _) in pairs])

    def _wake(self) -> None:
        if self._asleep and not setup.on_cpu():
            self._vllm.wake_up()
        self._asleep = False

    def _end(self, over: Fault) -> None:
        """Fail what is under way, and give memory and processes back."""
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
    """End an engine at the end of the process: a thread in the middle of vLLM must not outlive the
    interpreter."""
    living = engine()
    if living is not None:
        living.stop()
