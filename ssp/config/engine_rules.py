"""Which settings of an engine go with which kind of it.

Owns the rules about `{role}.engine.*`. Promises that a key which the chosen kind would ignore is refused. Refuses to look
at the machine: whether vLLM is installed is for `ssp.build.check_engines`, so that a plan can be made anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from ssp.config.role import EngineConfig
from ssp.config.schema import Config
from ssp.errors import InputError

KEYS = {
    "lanes": ("torch",),
    "continuous": ("torch",),
    "tensor_parallel": ("vllm",),
    "memory": ("vllm",),
    "kv_mb": ("vllm",),
    "sequences": ("vllm",),
    "prefix_cache": ("torch", "vllm"),
    "eager": ("vllm",),
    "url": ("endpoint",),
    "model": ("endpoint",),
    "key_env": ("endpoint",),
    "timeout": ("endpoint",),
}
"""The kinds that a key means something to; a key that is not here means something to all."""
_ROLES = ("proposer", "solver")


def keys_belong_to_the_kind(cfg: Config) -> None:
    """A key of another kind has its default: it would do nothing."""
    for role in _ROLES:
        engine = cfg.block(role).engine
        for item in fields(EngineConfig):
            value = getattr(engine, item.name)
            kinds = KEYS.get(item.name, (engine.kind,))
            if engine.kind not in kinds and value != item.default:
                key, shown = f"{role}.engine.{item.name}", str(value).lower() if isinstance(value, bool) else value
                rule = f"{key} belongs to engine.kind={' or '.join(kinds)}"
                found = f"{key}={shown} with engine.kind={engine.kind}"
                raise InputError(rule, found, f"leave {key} out, or set {role}.engine.kind={kinds[0]}")


def asked_is_given(cfg: Config) -> None:
    """What an engine cannot give is refused where somebody asks for it."""
    for role in _ROLES:
        block = cfg.block(role)
        kind = block.engine.kind
        if kind != "torch" and block.search.kind == "entropy" and block.search.entropy == "full":
            rule = (
                f"{role}.search.entropy is sampled with {role}.engine.kind={kind}, which gives no whole distributions"
            )
            raise InputError(rule, "full", f"set {role}.search.entropy=sampled, or {role}.engine.kind=torch")
        if cfg.transfer.verify and block.engine.tensor_parallel > 1:
            rule = f"transfer.verify reads weights back from engines of one rank, so {role}.engine.tensor_parallel is 1"
            raise InputError(rule, block.engine.tensor_parallel, "set transfer.verify=false")


def free_running_is_not_repeatable(cfg: Config) -> None:
    """Law 7: with both bounds 0 a run is repeatable, which turns that meet in a batch by chance are not; and episodes that
    run on their own have no lanes."""
    bounds = cfg.schedule.max_staleness
    for role in _ROLES:
        engine = cfg.block(role).engine
        if engine.continuous and bounds.proposer == 0 and bounds.solver == 0:
            rule = f"{role}.engine.continuous needs a staleness bound above 0: with both at 0 a run is repeatable"
            raise InputError(rule, "schedule.max_staleness=0, 0", "set schedule.preset=one-step-off, or leave it out")
        if engine.continuous and engine.lanes > 1:
            rule = (
                f"{role}.engine.lanes belongs to lock-step engines: with continuous=true each episode runs on its own"
            )
            raise InputError(rule, engine.lanes, f"set {role}.engine.lanes=1")


RULES: tuple[Callable[[Config], None], ...] = (
    keys_belong_to_the_kind,
    asked_is_given,
    free_running_is_not_repeatable,
)
