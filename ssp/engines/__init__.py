"""Engines: what turns token ids into sampled token ids.

Owns the choice by name. Promises that importing this package does not import torch.
Refuses to know text, roles, rewards.
"""

from __future__ import annotations

from pathlib import Path

from ssp.engines.base import Engine, Generation, Sampling, StopWords
from ssp.engines.scripted import Script, ScriptedEngine
from ssp.errors import InputError


def create(kind: str, model_dir: str | Path = "", dtype: str = "float32", script: Script | None = None) -> Engine:
    """The engine `kind`: `torch` reads the HF folder `model_dir`; `scripted` plays `script`. InputError otherwise."""
    if kind == "torch":
        from ssp.engines.torch_engine import TorchEngine

        return TorchEngine(model_dir, dtype=dtype)
    if kind == "scripted" and script is not None:
        return ScriptedEngine(script)
    found = "scripted without a script" if kind == "scripted" else kind
    raise InputError("engine.kind must be torch, or scripted with a script", found, "set engine.kind=torch")


__all__ = ["Engine", "Generation", "Sampling", "Script", "ScriptedEngine", "StopWords", "create"]
