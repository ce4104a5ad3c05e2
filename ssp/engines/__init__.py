"""Engines: what turns token ids into sampled token ids. Importing this package imports neither
torch nor vLLM."""

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from pkgutil import resolve_name

from ssp.base.errors import hold
from ssp.config.role import EngineConfig, LoraConfig
from ssp.engines.base import Engine, Generation, Sampling, StopWords
from ssp.engines.simulated import Script, ScriptedEngine

Faces = Callable[[EngineConfig, str | Path, Mapping[str, LoraConfig], bool], dict[str, Engine]]


def create(config: EngineConfig, model_dir: str | Path, sleeps: bool = False) -> Engine:
    """The configured engine with the model of the HF folder `model_dir`, which an endpoint does not
    look at. `sleeps`: a learner on the same GPUs takes turns with it. InputError for a kind that a
    script plays, and for one that is not installed."""
    rule = "an engine that no script plays has a model"
    hold(not config.traits.acted, rule, config.kind, "set engine.kind=torch")
    require(config)
    made: Engine = config.traits.make(config, model_dir, sleeps)
    return made


def require(config: EngineConfig) -> None:
    """InputError, which says what to install, where an engine of this kind cannot be made."""
    package = config.traits.package
    there = not package or importlib.util.find_spec(package) is not None
    rule = f"engine.kind={config.kind} needs the package {package}"
    hold(there, rule, "not installed", config.traits.install)


def faces(
    config: EngineConfig,
    model_dir: str | Path,
    adapters: Mapping[str, LoraConfig],
    sleeps: bool = False,
) -> dict[str, Engine]:
    """An engine for each role of `adapters`, over one with the base model of the folder
    `model_dir`. Each generates once it has loaded an adapter. InputError as of `create`."""
    require(config)
    make: Faces = resolve_name(config.traits.adapters)
    return make(config, model_dir, adapters, sleeps)


def acted(config: EngineConfig, script: Script) -> Engine:
    """The engine without a model that plays `script`: in no time (scripted), or in the time that
    the settings say (simulated)."""
    made: Engine = config.traits.make(config, script)
    return made


__all__ = [
    "Engine",
    "Generation",
    "Sampling",
    "Script",
    "ScriptedEngine",
    "StopWords",
    "acted",
    "create",
    "faces",
    "require",
]
