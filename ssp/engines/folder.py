"""A model's folder as the embedded engine reads it: config.json and *.safetensors.

Promises that a missing or broken file is an InputError that names it. Refuses to know architectures.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ssp.base.errors import InputError


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


def read_weights(folder: Path) -> dict[str, np.ndarray]:
    """HF parameter name → float32 array, of all weight files. InputError when there are none, or a broken one."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InputError(
            "a model folder holds *.safetensors", f"none in {folder}", "save the model in safetensors form"
        )
    weights: dict[str, np.ndarray] = {}
    for file in files:
        try:
            tensors = load_file(file)
        except SafetensorError as error:
            raise InputError(
                f"{file} must be a readable safetensors file", error, "copy or save the model again"
            ) from error
        weights |= {name: tensor.float().numpy() for name, tensor in tensors.items()}
    return weights
