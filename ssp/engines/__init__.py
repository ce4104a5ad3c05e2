"""Engines: what turns token ids into sampled token ids. Importing this package imports neither
torch nor vLLM."""

from collections.abc import Mapping
from pathlib import Path

from ssp.base.errors import InputError
from ssp.base.imports import uncollected
from ssp.config.role import EngineConfig, LoraConfig
from ssp.engines.base import Engine, Generation, Sampling, StopWords
from ssp.engines.simulated import DecodePace, Script, ScriptedEngine, SimulatedEngine


def create(config: EngineConfig, model_dir: str | Path, sleeps: bool = False) -> Engine:
    """The configured engine with the model of the HF folder `model_dir`. `sleeps`: a learner on the
    same GPUs takes turns with it. InputError for a kind that is not made from a folder, and for
    vLLM where it is not installed."""
    if config.kind == "torch":
        with uncollected():
            from ssp.engines.torch_engine import ContinuousEngine, TorchEngine

        kind = ContinuousEngine if config.continuous else TorchEngine
        return kind(model_dir, config.dtype, config.prefix_cache, config.device)
    if config.kind == "vllm":
        from ssp.engines.vllm.engine import VllmEngine

        return VllmEngine(model_dir, config, sleeps=sleeps)
    rule = "a folder's engine is engine.kind=torch or vllm"
    raise InputError(rule, config.kind, "set engine.kind=torch")


def faces(
    config: EngineConfig,
    model_dir: str | Path,
    adapters: Mapping[str, LoraConfig],
    sleeps: bool = False,
) -> dict[str, Engine]:
    """An engine for each role of `adapters`, over one vLLM with the base model of the folder
    `model_dir`. Each generates once it has loaded an adapter. InputError as of `create`."""
    from ssp.engines.vllm.engine import VllmEngine
    from ssp.engines.vllm.faces import Face

    engine = VllmEngine(model_dir, config, sleeps=sleeps, adapters=tuple(adapters.values()))
    return {role: Face(engine, role, lora) for role, lora in adapters.items()}


def acted(config: EngineConfig, script: Script) -> Engine:
    """The engine without a model that plays `script`: in no time (scripted), or in the time that
    the settings say (simulated)."""
    if config.kind == "scripted":
        return ScriptedEngine(script)
    cost = config.simulated
    pace = DecodePace(cost.step_ms / 1e3, cost.sequence_ms / 1e3, config.sequences)
    return SimulatedEngine(script, pace)


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
]
