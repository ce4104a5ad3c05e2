"""Slots and turns of a vLLM engine, and the files that it reads weights from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ssp.base import shared
from ssp.engines.base import Generation, Sampling


class Source(Protocol):
    """Whose weights a slot uses: the engine, or one of its faces. `lora`: vLLM's name for its adapter."""

    version: int
    lora: Any


@dataclass
class Slot:
    """What a slot has read and written, the seed of its turns, whose weights it uses, the salt of its cache: no block of
    another load is found under it."""

    ids: list[int]
    seed: int
    source: Source
    salt: str
    turns: int = 0
    turn: Turn | None = None


@dataclass(eq=False)
class Turn:
    """A turn under way: what was asked, what has been drawn, the version of each token."""

    name: str
    slot: Slot
    sampling: Sampling
    most: int
    seed: int
    begin: int
    future: Future[Generation] = field(default_factory=Future)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)


@contextmanager
def folder_in_memory(files: Mapping[str, Any]) -> Iterator[str]:
    """A folder with these files, as long as the context lives: arrays by name as safetensors, anything else as JSON."""
    from safetensors.numpy import save_file

    with shared.folder() as folder:
        for name, content in files.items():
            if name.endswith(".safetensors"):
                save_file({key: np.ascontiguousarray(array) for key, array in content.items()}, folder / name)
            else:
                (folder / name).write_text(json.dumps(content), encoding="utf-8")
        yield str(folder)
