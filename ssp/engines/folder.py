"""A model's folder as the embedded engine reads it: config.json and *.safetensors.

Promises that a missing or broken file is an InputError that names it. Refuses to know architectures.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ssp.base.errors import InputError

T = TypeVar("T")


def read_config(folder: Path) -> dict[str, Any]:
    """The HF configuration in a model folder. InputError when there is none, or none that can be read."""
    file = folder / "config.json"
    if not file.is_file():
        raise InputError("a model folder holds config.json", f"none in {folder}", "give a Hugging Face model folder")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(
            "config.json of a model is JSON", f"{file}: {error}", "copy or save the model again"
        ) from error
    if not isinstance(config, dict):
        raise InputError("config.json of a model is a JSON object", file, "copy or save the model again")
    return config


def _read(folder: Path, take: Callable[[Any, str], T]) -> dict[str, T]:
    """What `take` makes of each tensor (open file, name), of all weight files. InputError for none, or a broken one."""
    from safetensors import SafetensorError, safe_open

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InputError(
            "a model folder holds *.safetensors", f"none in {folder}", "save the model in safetensors form"
        )
    found: dict[str, T] = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as opened:
                found |= {name: take(opened, name) for name in opened.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise InputError(
                f"{file} must be a readable safetensors file", error, "copy or save the model again"
            ) from error
    return found


def read_weights(folder: Path) -> dict[str, np.ndarray]:
    """HF parameter name → float32 array. InputError without readable *.safetensors."""
    return _read(folder, lambda opened, name: opened.get_tensor(name).float().numpy())


def shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """HF parameter name → its shape. InputError without readable *.safetensors."""
    return _read(folder, lambda opened, name: tuple(opened.get_slice(name).get_shape()))
