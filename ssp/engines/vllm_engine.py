"""The vLLM engine: real paged attention and continuous batching on CPU and GPUs, behind the engine interface.

Owns the slots' ids, the thread that steps vLLM, and the turns under way. Promises token in, token out; a version on every
token; that nothing computed by one version's weights is found by another's (caches carry the load's number as salt, and
`load` empties them); and that a failure of vLLM is a Fault of the turns that it hit, never a value.
Equal to the other engines in distribution only: its draws depend on the batch (law 7). Refuses to know text.
"""

from __future__ import annotations

import atexit
import gc
import math
import os
import tempfile
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ssp.config.role import EngineConfig
from ssp.engines import vllm_setup, vllm_worker
from ssp.engines.base import Generation, Sampling, check_step
from ssp.engines.folder import read_config
from ssp.engines.orders import OrderThread
from ssp.errors import Fault, InputError, InvariantError
from ssp.seeds import derive

DOWN, REFUSED, ABORTED, NONFINITE = "engine_down", "engine_refused", "aborted", "engine_nonfinite"
RESIDUAL_MB = 2048
"""Most that a sleeping engine may still hold on each of its GPUs: the learner plans with the rest."""
_MB = 2**20
_LIVE: weakref.WeakSet[VllmEngine] = weakref.WeakSet()
"""Engines of this process: they share vLLM's global process groups, which the last one takes down."""


@dataclass
class _Slot:
    """What a slot has read and written, the seed of its turns, the load under which it opened."""

    ids: list[int]
    seed: int
    salt: str
    turns: int = 0
    turn: _Turn | None = None


@dataclass(eq=False)
class _Turn:
    """A turn under way: what was asked, what has been drawn, the version of each token."""

    name: str
    slot: _Slot
    sampling: Sampling
    most: int
    seed: int
    begin: int
    future: Future[Generation] = field(default_factory=Future)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)


class VllmEngine:
    """Generates with vLLM in this process; with `tensor_parallel` above 1 its workers are processes of their own.

    `model_dir`: an HF folder. `sleeps` (GPUs): `sleep` and `wake` work. A live engine: see `LiveEngine`.
    InputError when vLLM is not installed or refuses the model.
    """

    def __init__(self, model_dir: str | Path, config: EngineConfig, version: int = 0, sleeps: bool = False) -> None:
        folder = Path(model_dir)
        self.version = version
        self._shapes = vllm_setup.shapes(folder)
        self._tied = bool(read_config(folder).get("tie_word_embeddings"))
        self._ranks, self._sleeps, self._asleep = config.tensor_parallel, sleeps, False
        self._vllm = vllm_setup.start(folder, config, sleeps)
        if self._ranks > 1:
            self._vllm.collective_rpc(vllm_worker.watch)
        else:
            self._vllm.engine_core._finalizer.detach()  # would take down what other engines here use; see `stop`
        self.context: int = self._vllm.model_config.max_model_len
        self._vocabulary: int = self._vllm.model_config.get_vocab_size()
        self._slots: dict[int, _Slot] = {}
        self._next, self._loads = 0, 0
        self._turns: dict[str, _Turn] = {}
        self._spoilt = False
        _LIVE.add(self)
        self._thread = OrderThread("vllm-step", lambda: bool(self._turns), self._advance, self._end)
        atexit.register(_stop, weakref.ref(self))

    def load(self, weights: Mapping[str, np.ndarray], version: int, keep: bool = False) -> None:
        """See `Engine.load`. With `keep`, turns under way keep their keys and values; a slot's later turns find whole
        blocks of them again, and compute the rest with the new weights. InputError for a missing or misshapen weight.
        """
        self._check(weights)
        self._thread.ask(lambda: self._load(weights, version, keep))

    def load_device(self, tensors: dict[str, Any], version: int, keep: bool = False) -> None:
        """`load` from torch tensors on this engine's GPU. Never run on a GPU yet."""
        self.load(tensors, version, keep)

    def open(self, seeds: list[int]) -> list[int]:
        """New empty slots, one a seed."""
        slots = list(range(self._next, self._next + len(seeds)))
        self._next += len(seeds)
        self._slots.update({slot: _Slot([], seed, str(self._loads)) for slot, seed in zip(slots, seeds, strict=True)})
        return slots

    def close(self, slots: list[int]) -> None:
        """Forget slots; a turn under way there is aborted."""
        self.abort(slots)
        for slot in slots:
            self._slots.pop(slot, None)

    def submit(self, slot: int, pending: list[int], sampling: Sampling) -> Future[Generation]:
        """One turn of one slot; see `FreeEngine.submit`. The whole context goes along: the prefix cache knows it."""
        check_step([slot], [pending], self._slots)
        state = self._slots[slot]
        if state.turn is not None:
            raise InvariantError(f"slot {slot} has a turn under way")
        if sampling.entropy:
            rule = "vLLM gives no entropy of the whole distribution"
            raise InputError(rule, "asked for", "set search.entropy=sampled, or engine.kind=torch")
        begin = len(state.ids)
        state.ids.extend(pending)
        if pending and not 0 <= min(pending) <= max(pending) < self._vocabulary:
            del state.ids[begin:]
            rule = f"ids lie in the model's vocabulary of {self._vocabulary}"
            raise InputError(rule, f"{min(pending)} to {max(pending)}", "use the tokenizer of this model")
        if not state.ids:
            raise InputError("a new slot needs at least one token before it can sample", "no tokens", "give a prompt")
        most = min(sampling.max_tokens, self.context - len(state.ids))
        turn = _Turn(f"{slot}.{state.turns}", state, sampling, most, derive(state.seed, "turn", state.turns), begin)
        if most <= 0:
            turn.future.set_result(Generation([], [], self.version, False))
            return turn.future
        state.turns += 1
        state.turn = turn
        self._thread.order(lambda over: self._begin(turn, over))
        return turn.future

    def step(self, slots: list[int], pending: list[list[int]], samplings: Sampling) -> list[Generation]:
        """One turn of each slot, all at once."""
        check_step(slots, pending, self._slots)
        futures = [self.submit(slot, ids, samplings) for slot, ids in zip(slots, pending, strict=True)]
        return [future.result() for future in futures]

    def abort(self, slots: list[int]) -> None:
        """End these slots' turns: their futures raise Fault `aborted`, and each slot is as it was before the turn."""
        turns = [state.turn for slot in slots if (state := self._slots.get(slot)) and state.turn is not None]
        if turns:
            self._thread.ask(lambda: self._abort(turns))

    def weights(self) -> dict[str, np.ndarray]:
        """The weights that are computed with, by Hugging Face name, float32: for a comparison with what was sent."""
        if self._ranks > 1:
            rule = "weights are read back from an engine of one rank"
            raise InputError(rule, f"tensor_parallel={self._ranks}", "set transfer.verify=false")
        found: dict[str, np.ndarray] = self._thread.ask(lambda: self._vllm.collective_rpc(vllm_worker.read)[0])
        if self._tied:
            head = found.setdefault("lm_head.weight", found["model.embed_tokens.weight"])
            if not np.array_equal(head, found["model.embed_tokens.weight"]):  # on a CPU each is packed for itself
                raise InvariantError("the tied output head of vLLM is not the embedding matrix: it was not reloaded")
        return found

    def sleep(self) -> None:
        """Give the GPU memory of weights and cache back until `wake`; no turn may be under way. Never run on a GPU yet.

        InputError unless the engine was made with `sleeps`; Fault `engine_awake` when too much memory stays taken.
        """
        self._sleeper()
        self._thread.ask(self._sleep)

    def wake(self) -> None:
        """Take the memory again. Weights are as they were; caches are empty."""
        self._sleeper()
        self._thread.ask(self._wake)

    def stop(self) -> None:
        """End the thread, the worker processes and the turns under way; the memory is free for others."""
        self._thread.stop()

    def _sleeper(self) -> None:
        if not self._sleeps:
            rule = "an engine sleeps and wakes in placement.layout=colocate, on GPUs"
            raise InputError(rule, "an engine that stays awake", "set placement.layout=separate")

    def _check(self, weights: Mapping[str, np.ndarray]) -> None:
        """vLLM itself only warns of weights that are missing."""
        for name, shape in self._shapes.items():
            if name not in weights or tuple(weights[name].shape) != shape:
                found = f"{tuple(weights[name].shape)}" if name in weights else "missing"
                raise InputError(f"weights hold {name} of shape {shape}", found, "publish weights of this model")
        extra = set(weights) - set(self._shapes) - ({"lm_head.weight"} if self._tied else set())
        if extra:
            raise InputError("weights hold the model's parameters only", sorted(extra)[:3], "publish this model's")

    # What follows runs on the step thread.

    def _advance(self) -> None:
        for output in self._vllm.step():
            self._take(output)

    def _begin(self, turn: _Turn, over: Fault | None) -> None:
        if over is not None or self._asleep:
            return self._fail(turn, over or Fault(REFUSED, "the engine sleeps"))
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        asked = turn.sampling
        try:
            params = SamplingParams(
                temperature=asked.temperature,
                max_tokens=turn.most,
                stop_token_ids=list(asked.stop_ids),
                ignore_eos=True,  # which ids end a turn is `stop_ids` alone
                logprobs=0,
                seed=turn.seed,
                detokenize=False,
                output_kind=RequestOutputKind.DELTA,
            )
            prompt = {"prompt_token_ids": list(turn.slot.ids), "cache_salt": turn.slot.salt}
            self._vllm.add_request(turn.name, prompt, params)
        except ValueError as error:
            return self._fail(turn, Fault(REFUSED, _short(error)))
        self._turns[turn.name] = turn

    def _take(self, output: Any) -> None:
        """New tokens of one turn; ends it at a stop string, which vLLM does not see without text."""
        turn = self._turns.get(output.request_id)
        if turn is None:
            return
        words, made = turn.sampling.stop_words, output.outputs[0]
        for id_, logprobs in zip(made.token_ids, made.logprobs or [], strict=True):
            logprob = logprobs[id_].logprob
            if not math.isfinite(logprob):
                self._spoilt = True
                self._vllm.abort_request([turn.name])
                detail = f"version {self.version} gives log-probs that are not numbers"
                return self._fail(turn, Fault(NONFINITE, detail))
            turn.ids.append(id_)
            turn.logprobs.append(logprob)
            turn.versions.append(self.version)
            if words is not None and words.hit(turn.ids):
                if not output.finished:
                    self._vllm.abort_request([turn.name])
                return self._finish(turn, True)
        if output.finished:
            if made.finish_reason not in ("stop", "length"):
                return self._fail(turn, Fault(DOWN, f"vLLM ended the turn: {made.finish_reason}"))
            self._finish(turn, made.finish_reason == "stop")

    def _finish(self, turn: _Turn, stopped: bool) -> None:
        self._turns.pop(turn.name, None)
        turn.slot.ids.extend(turn.ids)
        turn.slot.turn = None
        several = turn.versions if len(set(turn.versions)) > 1 else None
        turn.future.set_result(Generation(turn.ids, turn.logprobs, turn.versions[-1], stopped, versions=several))

    def _fail(self, turn: _Turn, fault: Fault) -> None:
        self._turns.pop(turn.name, None)
        turn.slot.turn = None
        del turn.slot.ids[turn.begin :]
        if not turn.future.done():
            turn.future.set_exception(fault)

    def _abort(self, turns: list[_Turn]) -> None:
        under_way = [turn for turn in turns if turn.name in self._turns]
        self._vllm.abort_request([turn.name for turn in under_way])
        for turn in under_way:
            self._fail(turn, Fault(ABORTED))

    def _load(self, weights: Mapping[str, np.ndarray], version: int, keep: bool) -> None:
        if not keep:
            self._abort(list(self._turns.values()))
            self._slots.clear()
        self._reload(weights)
        self._loads += 1
        if not keep:
            self._empty_cache()
        self.version = version

    def _reload(self, weights: Mapping[str, np.ndarray]) -> None:
        if self._ranks == 1:
            self._vllm.collective_rpc(vllm_worker.reload, args=(weights,))
            return
        import torch
        from safetensors.torch import save_file

        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
            file = os.path.join(folder, "weights.safetensors")
            tensors = {name: torch.as_tensor(np.array(value)) for name, value in _on_host(weights).items()}
            save_file(tensors, file)
            self._vllm.collective_rpc(vllm_worker.reload, args=(file,))

    def _empty_cache(self) -> None:
        """Law 1 twice over: no block stays findable, though none could be found under the next load's salt."""
        if not self._vllm.reset_prefix_cache():
            raise InvariantError("vLLM keeps blocks of its prefix cache although no turn is under way")
        if self._spoilt:
            self._vllm.collective_rpc(vllm_worker.clear_cache)
            self._spoilt = False

    def _sleep(self) -> None:
        if self._turns:
            raise InvariantError(f"an engine falls asleep with {len(self._turns)} turns under way")
        before = self._vllm.collective_rpc(vllm_worker.device_bytes)
        self._vllm.sleep(level=1)
        self._asleep = True
        after = self._vllm.collective_rpc(vllm_worker.device_bytes)
        check_residual([(held, now - free) for (free, held), (now, _) in zip(before, after, strict=True)])

    def _wake(self) -> None:
        self._vllm.wake_up()
        self._asleep = False

    def _end(self, over: Fault) -> None:
        """Fail what is under way; memory and processes back."""
        for turn in list(self._turns.values()):
            self._fail(turn, over)
        _LIVE.discard(self)
        client, runner = self._vllm.engine_core, None
        if self._ranks == 1 and _LIVE:
            runner = self._vllm.model_executor.driver_worker.worker.model_runner
            runner.kv_caches.clear()
            runner.compilation_config.static_forward_context.clear()
            runner.model = None
            gc.unfreeze()
        else:
            client.engine_core.shutdown()
        del self._vllm, client, runner
        gc.collect()


def check_residual(ranks: list[tuple[int, int]]) -> None:
    """Fault `engine_awake` when a rank freed too little. `ranks`: (bytes held when awake, bytes freed) of each."""
    for rank, (held, freed) in enumerate(ranks):
        if held - freed > RESIDUAL_MB * _MB:
            found = f"rank {rank} of a sleeping engine freed {freed // _MB} of {held // _MB} MB"
            raise Fault("engine_awake", f"{found}; at most {RESIDUAL_MB} MB may stay")


def _on_host(weights: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: value.float().cpu().numpy() if hasattr(value, "cpu") else value for name, value in weights.items()}


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]


def _stop(engine: weakref.ref[VllmEngine]) -> None:
    """At the end of the process: a thread in the middle of vLLM must not outlive the interpreter."""
    living = engine()
    if living is not None:
        living.stop()
