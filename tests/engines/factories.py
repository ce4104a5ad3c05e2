"""The engines that the suite runs on. One more kind is one more `Factory`.

A factory gives a name, whether its engine is live (`LiveEngine`: submit, abort, stop, load with keep), and
`make(folder, prefix_cache)`: an engine over the Hugging Face folder, in float32, with room for 64 slots of 512 tokens.
The suite makes few engines and uses them again: each test loads the weights that it needs first.

`vllm` comes from `vllmfactory.make`, imported when the first test asks for it; its tests carry the mark `ray`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
    from ssp.engines.continuous import ContinuousEngine

    return ContinuousEngine(folder, prefix_cache=prefix_cache)


def _vllm(folder: Path, prefix_cache: bool) -> Engine:
    from vllmfactory import make

    engine: Engine = make(folder, prefix_cache)
    return engine


FACTORIES = {
    factory.name: factory
    for factory in (
        Factory("torch", False, _torch),
        Factory("continuous", True, _continuous),
        Factory("vllm", True, _vllm),
    )
}
