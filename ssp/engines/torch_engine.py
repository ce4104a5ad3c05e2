"""The embedded torch engine: many slots, one KV cache, lock-step segments, exact log-probs.

Owns the order of work: read what is pending in all slots, then sample them all until the last has stopped.
Promises the engine interface on a CPU with log-probs equal to a full forward, the same bits for the same calls.
Refuses to know text. It uses the process's torch threads as they are: set one thread a process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ssp.base.errors import Fault, InputError, InvariantError
from ssp.engines.base import Generation, Sampling, check_step
from ssp.engines.folder import read_weights
from ssp.engines.rows import Rows
from ssp.engines.turns import Turn, Turns


class TorchEngine:
    """Generates with a Llama, Qwen2 or Qwen3 model. `model`: an HF folder, or its configuration as a mapping (then `load`
    comes first). `prefix_cache`: a prompt that several slots share is read once.

    Deterministic on one build and thread count. InputError for another architecture, or for a broken folder.
    """

    def __init__(
        self,
        model: str | Path | Mapping[str, Any],
        dtype: str = "float32",
        version: int = 0,
        prefix_cache: bool = True,
    ) -> None:
        self.version = version
        self._rows = Rows(model, dtype, prefix_cache)
        self._next = 0
        if not isinstance(model, Mapping):
            self.load(read_weights(Path(model)), version)

    def load(self, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        """Replace the weights and forget every slot. InputError when a parameter is missing or has another shape."""
        if keep:
            raise InvariantError("a lock-step engine has no turns in flight")
        self._rows.replace(self._rows.decoder(weights), keep=False)
        self.version = version

    def differs(self, weights: dict[str, np.ndarray]) -> str:
        """The first pack of weights that is not the one that `weights` give; "" for none."""
        return "all of it" if self._rows.model is None else self._rows.model.differs(weights)

    def open(self, seeds: list[int]) -> list[int]:
        """New empty slots, one a seed (any integer; taken modulo 2**64)."""
        slots = list(range(self._next, self._next + len(seeds)))
        self._next += len(seeds)
        self._rows.open(slots, seeds)
        return slots

    def close(self, slots: list[int]) -> None:
        """Forget slots; closed or forgotten ones are fine."""
        self._rows.close(slots)

    @torch.inference_mode()
    def step(self, slots: list[int], pending: list[list[int]], samplings: Sampling) -> list[Generation]:
        """Feed `pending`, then sample. Fault `engine_nonfinite` when the model's output is not a number.

        A slot whose pending ids leave no room in the model's context gives an empty generation that is not stopped.
        """
        check_step(slots, pending, self._rows.row)
        if self._rows.model is None:
            raise InputError("the engine needs weights before its first step", "none", "call load(weights, version)")
        generations = {slot: Generation([], [], self.version, False) for slot in slots}
        turns = Turns(self._rows)
        new = [
            Turn(slot, ids, samplings, room, self.version)
            for slot, ids in zip(slots, pending, strict=True)
            if (room := self._rows.room(slot, ids, samplings.max_tokens)) > 0
        ]
        if new:
            turns.add(new)
        while turns:
            generations |= {turn.slot: generation for turn, generation in turns.advance()}
        if not all(math.isfinite(x) for generation in generations.values() for x in generation.logprobs):
            self._rows.wipe()
            raise Fault("engine_nonfinite", f"version {self.version} gives log-probs that are not numbers")
        return [generations[slot] for slot in slots]
