"""Which settings of an engine go with which kind of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from urllib.parse import urlsplit

from ssp.base.episode import PROPOSER
from ssp.base.errors import InputError
from ssp.config.role import EngineConfig, LearnerConfig, SimulatedConfig
from ssp.config.rules import is_address
from ssp.config.schema import Config
from ssp.config.tables import ACTED

KEYS = {
    "lanes": ("torch",),
    "continuous": ("torch",),
    "tensor_parallel": ("vllm",),
    "memory": ("vllm",),
    "kv_mb": ("vllm",),
    "sequences": ("vllm", "simulated"),
    "prefix_cache": ("torch", "vllm"),
    "eager": ("vllm",),
    "url": ("endpoint",),
    "model": ("endpoint",),
    "key_env": ("endpoint",),
    "simulated": ACTED,
}
"""The kinds that a key means something to; a key that is not here means something to all."""
_ROLES = ("proposer", "solver")


def keys_belong_to_the_kind(cfg: Config) -> None:
    """A key of another kind has its default: it would do nothing."""
    standard = EngineConfig()
    for role in _ROLES:
        engine = cfg.block(role).engine
        for item in fields(EngineConfig):
            value = getattr(engine, item.name)
            kinds = KEYS.get(item.name, (engine.kind,))
            if engine.kind not in kinds and value != getattr(standard, item.name):
                key, shown = f"{role}.engine.{item.name}", str(value).lower() if isinstance(value, bool) else value
                rule = f"{key} belongs to engine.kind={' or '.join(kinds)}"
                found = f"{key}={shown} with engine.kind={engine.kind}"
                raise InputError(rule, found, f"leave {key} out, or set {role}.engine.kind={kinds[0]}")


def scripts_are_not_learned_from(cfg: Config) -> None:
    """What a script says has no probability, so who learns from it only pretends to; and who pretends has no weights."""
    standard = LearnerConfig()
    for role in cfg.roles:
        block = cfg.block(role)
        acted, pretends = block.engine.kind in ACTED, block.learner.kind == "simulated"
        if acted != pretends:
            rule = f"{role}.learner.kind is simulated where {role}.engine.kind is {' or '.join(ACTED)}, and only there"
            found = f"engine.kind={block.engine.kind}, learner.kind={block.learner.kind}"
            raise InputError(rule, found, f"set {role}.learner.kind={'simulated' if acted else 'torch'}")
        if not pretends and block.learner.token_ms != standard.token_ms:
            rule = f"{role}.learner.token_ms belongs to learner.kind=simulated"
            raise InputError(rule, block.learner.token_ms, f"leave {role}.learner.token_ms out")
        if acted and block.search.kind != "retriever":
            rule = f"{role}.search.kind is retriever where a script plays, which recalls nothing"
            raise InputError(rule, block.search.kind, f"set {role}.search.kind=retriever")


def scripts_take_their_own_time(cfg: Config) -> None:
    """A scripted engine takes none, and a length without a mean has no spread."""
    standard = SimulatedConfig()
    for role in cfg.roles:
        engine = cfg.block(role).engine
        if engine.kind not in ACTED:
            continue
        timed = (engine.simulated.step_ms, engine.simulated.sequence_ms)
        if engine.kind == "scripted" and timed != (standard.step_ms, standard.sequence_ms):
            rule = f"{role}.engine.simulated.step_ms and sequence_ms belong to engine.kind=simulated"
            raise InputError(rule, "engine.kind=scripted", f"set {role}.engine.kind=simulated, or leave them out")
        if not engine.simulated.tokens and engine.simulated.sigma != standard.sigma:
            rule = f"{role}.engine.simulated.sigma spreads lengths around {role}.engine.simulated.tokens"
            raise InputError(rule, "tokens=0", f"set {role}.engine.simulated.tokens=200")


def scripts_are_not_verified(cfg: Config) -> None:
    """A script's question has no true answer: a verifier that reads would reject all of them, or play a script itself."""
    if PROPOSER not in cfg.roles or cfg.proposer.engine.kind not in ACTED and cfg.solver.engine.kind not in ACTED:
        return
    if cfg.referee.verifier != "none":
        rule = f"referee.verifier is none where a script plays (engine.kind={' or '.join(ACTED)})"
        raise InputError(rule, cfg.referee.verifier, "set referee.verifier=none referee.evidence=none")


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


def engines_have_an_address(cfg: Config) -> None:
    """An engine behind HTTP has a base address, without a key in it: run folders and messages show it."""
    for role in ("proposer", "solver"):
        engine = cfg.block(role).engine
        if engine.kind != "endpoint":
            continue
        if not is_address(engine.url):
            found, step = repr(engine.url), f"e.g. {role}.engine.url=http://127.0.0.1:8000/v1"
            raise InputError("an endpoint (--policy, {role}.engine.url) is an http(s) address", found, step)
        if "@" in urlsplit(engine.url).netloc or "?" in engine.url:
            raise InputError(
                "an endpoint's address (--policy, {role}.engine.url) holds no user, password or query",
                "an @ before the host, or a ?",
                f"put the key into an environment variable, and its name into {role}.engine.key_env",
            )


RULES: tuple[Callable[[Config], None], ...] = (
    engines_have_an_address,
    keys_belong_to_the_kind,
    scripts_are_not_learned_from,
    scripts_take_their_own_time,
    scripts_are_not_verified,
    asked_is_given,
    free_running_is_not_repeatable,
)
