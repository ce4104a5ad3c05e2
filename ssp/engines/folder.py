"""The weights in a model's folder, *.safetensors. A missing or broken file is an InputError."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ssp.base.errors import hold, holding

T = TypeVar("T")


def _read(folder: Path, take: Callable[[Any, str], T]) -> dict[str, T]:
    """What `take` makes of each tensor (open file, name), of all weight files."""
    from safetensors import SafetensorError, safe_open

    files = sorted(folder.glob("*.safetensors"))
    hold(files, "a model folder holds *.safetensors", f"none in {folder}", "save the model in safetensors form")
    found: dict[str, T] = {}
    for file in files:
        rule, step = f"{file} must be a readable safetensors file", "copy or save the model again"
        with holding(SafetensorError, rule, str, step), safe_open(file, framework="pt") as opened:
            found |= {name: take(opened, name) for name in opened.keys()}  # noqa: SIM118
    return found


def read_weights(folder: Path) -> dict[str, np.ndarray]:
    """HF parameter name → float32 array."""
    return _read(folder, lambda opened, name: opened.get_tensor(name).float().numpy())


def shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """HF parameter name → its shape."""
    return _read(folder, lambda opened, name: tuple(opened.get_slice(name).get_shape()))
