"""Faces of a vLLM engine: one base model, and an adapter (LoRA) for each role that generates.

Promises that each face is an engine like any other, for a thread of its own; that a new adapter
replaces the old one as a whole, while the turns of other faces go on; and that what is not an
adapter of this base, as configured, is refused (vLLM would take a missing tensor for zeros).
Adapters are tensors by peft's names (Hu et al. 2021, arXiv 2106.09685)."""

from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from ssp.base.errors import InputError, InvariantError
from ssp.config.role import EngineConfig, LoraConfig
from ssp.engines.base import FreeEngine, Generation, Sampling
from ssp.engines.vllm.engine import VllmEngine


class Face(FreeEngine):
    """One role's engine over a shared base: see `FreeEngine`. It generates once it has loaded an
    adapter."""

    def __init__(self, engine: VllmEngine, role: str, config: LoraConfig) -> None:
        self.version = -1
        self.lora: Any = None
        """vLLM's name for the adapter that is loaded."""
        self._engine = engine
        self._role = role
        self._config = config
        self._shapes: dict[str, tuple[int, ...]] = {}
        for name, shape in engine.shapes.items():
            layer, _, what = name.rpartition(".")
            if what == "weight" and layer.rpartition(".")[2] in config.targets:
                outputs, inputs = shape
                lora = f"base_model.model.{layer}.lora"
                self._shapes[f"{lora}_A.weight"] = (config.rank, inputs)
                self._shapes[f"{lora}_B.weight"] = (outputs, config.rank)

    def load(self, weights: Mapping[str, np.ndarray], version: int, keep: bool = False) -> None:
        """Replace the adapter (peft names, float32), and forget every slot of this face. InputError
        for other tensors."""
        if keep:
            what = "a running turn keeps its adapter: nothing is in flight on a shared base"
            raise InvariantError(what)
        rank = self._config.rank
        targets = list(self._config.targets)
        shapes = {name: tuple(array.shape) for name, array in weights.items()}
        if shapes != self._shapes:
            name, _ = min(shapes.items() ^ self._shapes.items())
            rule = f"an adapter of rank {rank} for {', '.join(targets)} of this base"
            given = f"{name} of shape {shapes.get(name, 'none')}"
            raise InputError(rule, given, "publish adapters of this model")
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "target_modules": targets,
            "r": rank,
            "lora_alpha": rank,
        }
        files = {"adapter_model.safetensors": weights, "adapter_config.json": config}
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


def made(
    config: EngineConfig, folder: Path, adapters: Mapping[str, LoraConfig], sleeps: bool
) -> dict[str, Face]:
    """A face of one engine for each role of `adapters`, over the model of `folder`."""
    engine = VllmEngine(folder, config, sleeps, tuple(adapters.values()))
    return {role: Face(engine, role, lora) for role, lora in adapters.items()}
