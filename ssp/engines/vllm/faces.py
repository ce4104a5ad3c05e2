"""Faces of a vLLM engine: one base model, and for each role an adapter (LoRA) with which it
generates.

Promises that each face is an engine like any other, for a thread of its own; that a new adapter
replaces the old one as a whole, while other faces' turns go on; and that what is not an adapter of
this base, as configured, is refused (vLLM would take a missing tensor for zeros). Adapters are
tensors by peft's names (Hu et al. 2021, arXiv 2106.09685)."""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np

from ssp.base.errors import InputError, InvariantError
from ssp.config.role import LoraConfig
from ssp.engines.base import FreeEngine, Generation, Sampling
from ssp.engines.vllm.engine import VllmEngine


class Face(FreeEngine):
    """One role's engine over a shared base: see `FreeEngine`. It generates once it has loaded an
    adapter."""

    def __init__(self, engine: VllmEngine, role: str, config: LoraConfig) -> None:
        self.version = -1
        self.lora: Any = None
        """vLLM's name for the adapter that is loaded."""
        self._engine, self._role, self._config = engine, role, config
        self._shapes: dict[str, tuple[int, ...]] = {}
        for name, shape in engine.shapes.items():  # [outputs, inputs]
            layer, _, what = name.rpartition(".")
            if what == "weight" and layer.rpartition(".")[2] in config.targets:
                self._shapes[f"base_model.model.{layer}.lora_A.weight"] = (config.rank, shape[1])
                self._shapes[f"base_model.model.{layer}.lora_B.weight"] = (shape[0], config.rank)

    def load(self, weights: Mapping[str, np.ndarray], version: int, keep: bool = False) -> None:
        """Replace the adapter (peft names, float32), and forget every slot of this face. InputError
        for other tensors."""
        if keep:
            raise InvariantError(
                "a running turn keeps its adapter: nothing is in flight on a shared base"
            )
        found = {name: tuple(array.shape) for name, array in weights.items()}
        if found != self._shapes:
            odd = sorted(set(found.items()) ^ set(self._shapes.items()))[0]
            rule = (
                f"an adapter of rank {self._config.rank} for {', '.join(self._config.targets)} of"
                " this base"
            )
            raise InputError(
                rule,
                f"{odd[0]} of shape {found.get(odd[0], 'none')}",
                "publish adapters of this model",
            )
        rank, targets = self._config.rank, list(self._config.targets)
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "target_modules": targets,
            "r": rank,
        }
        files = {
            "adapter_model.safetensors": weights,
            "adapter_config.json": {**config, "lora_alpha": rank},
        }
        self._engine.adopt(self, self._role, files, version)

    def open(self, seeds: list[int]) -> list[int]:
        """New empty slots, one a seed."""
        return self._engine.open(seeds, self)

    def close(self, slots: list[int]) -> None:
        """Forget slots; a turn under way there is aborted."""
        self._engine.close(slots)

    def submit(self, slot: int, pending: list[int], sampling: Sampling) -> Future[Generation]:
        """One turn of one slot; see `FreeEngine.submit`."""
        return self._engine.submit(slot, pending, sampling)

    def sleep(self) -> None:
        """Have the whole engine sleep; see `VllmEngine.sleep`."""
        self._engine.sleep()

    def wake(self) -> None:
        """Wake it; adapters are as they were."""
        self._engine.wake()
