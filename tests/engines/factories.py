"""The engines that the suite runs on. One more kind is one more `Factory`.

A factory gives a name, whether its engine is live (`LiveEngine`: submit, abort, stop, load with keep), and
`make(folder, prefix_cache)` (vLLM always has its cache): an engine over the Hugging Face folder, in float32, with room for 64 slots of 512 tokens.
The suite makes few engines and uses them again: each test loads the weights that it needs first.

Tests of `vllm` carry the mark `ray`, and are skipped where it is not installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ssp.config.role import EngineConfig
from ssp.engines import Engine


@dataclass(frozen=True)
class Factory:
    """One kind of engine."""

    name: str
    live: bool
    make: Callable[[Path, bool], Engine]


def _torch(folder: Path, prefix_cache: bool) -> Engine:
    from ssp.engines.torch_engine import TorchEngine

    return TorchEngine(folder, prefix_cache=prefix_cache)


def _continuous(folder: Path, prefix_cache: bool) -> Engine:
    from ssp.engines.torch_engine import ContinuousEngine

    return ContinuousEngine(folder, prefix_cache=prefix_cache)


def _vllm(folder: Path, prefix_cache: bool) -> Engine:
    from ssp.engines.vllm.engine import VllmEngine

    return VllmEngine(folder, EngineConfig(kind="vllm", kv_mb=64, sequences=64))


FACTORIES = {
    factory.name: factory
    for factory in (
        Factory("torch", False, _torch),
        Factory("continuous", True, _continuous),
        Factory("vllm", True, _vllm),
    )
}
