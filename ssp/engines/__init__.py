"""Engines: what turns token ids into sampled token ids.

Owns the choice by name. Promises that importing this package does not import torch.
Refuses to know text, roles, rewards.
"""

from __future__ import annotations

from pathlib import Path

from ssp.engines.base import Engine, Generation, Sampling, StopWords
from ssp.engines.scripted import Script, ScriptedEngine
from ssp.errors import InputError


def create(kind: str, model_dir: str | Path, dtype: str = "float32") -> Engine:
    """The engine `kind` with the model of the HF folder `model_dir`. InputError for an unknown kind."""
    if kind != "torch":
        raise InputError("engine.kind must be torch", kind, "set engine.kind=torch")
    from ssp.engines.torch_engine import TorchEngine

    return TorchEngine(model_dir, dtype=dtype)


__all__ = ["Engine", "Generation", "Sampling", "Script", "ScriptedEngine", "StopWords", "create"]
