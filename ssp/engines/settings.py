"""Which settings of an engine go with which kind of it."""

from dataclasses import fields

from ssp.base.errors import InputError, hold
from ssp.base.services import ENGINE_KEY
from ssp.config.role import EngineConfig
from ssp.config.rules import Rule, check_address
from ssp.config.schema import Config
from ssp.config.tables import ACTED

KEYS = {
    "device": ("torch",),
    "tensor_parallel": ("vllm",),
    "memory": ("vllm",),
    "sequences": ("vllm", "simulated"),
    "url": ("endpoint",),
    "simulated": ACTED,
}
"""The kinds that a key means something to; a key that is not here means something to all."""


def keys_belong_to_the_kind(cfg: Config) -> None:
    """A key of another kind has its default: it would do nothing."""
    standard = EngineConfig()
    for role in cfg.spec.role_blocks:
        engine = cfg.block(role).engine
        for item in fields(EngineConfig):
            value, kinds = getattr(engine, item.name), KEYS.get(item.name, (engine.kind,))
            if engine.kind not in kinds and value != getattr(standard, item.name):
                key = f"{role}.engine.{item.name}"
                rule = f"{key} belongs to engine.kind={' or '.join(kinds)}"
                found = f"{value} with engine.kind={engine.kind}"
                raise InputError(
                    rule, found, f"leave {key} out, or set {role}.engine.kind={kinds[0]}"
                )


def scripts_are_not_learned_from(cfg: Config) -> None:
    """What a script says has no probability and recalls nothing, so who learns from it only
    pretends to. Its questions have no true answer: a verifier that reads would reject them, or play
    a script itself."""
    for role in cfg.roles:
        block = cfg.block(role)
        acted = block.engine.kind in ACTED
        if acted != (block.learner.kind == "simulated"):
            rule = (
                f"{role}.learner.kind is simulated where {role}.engine.kind is"
                f" {' or '.join(ACTED)}, and only there"
            )
            found = f"engine.kind={block.engine.kind}, learner.kind={block.learner.kind}"
            raise InputError(
                rule, found, f"set {role}.learner.kind={'simulated' if acted else 'torch'}"
            )
        rule, step = (
            f"{role}.search.kind is retriever where a script plays",
            f"set {role}.search.kind=retriever",
        )
        hold(not acted or block.search.kind == "retriever", rule, block.search.kind, step)
    kinds = {cfg.asking.engine.kind, cfg.answering.engine.kind}
    if cfg.asks and kinds.intersection(ACTED) and cfg.referee.verifier != "none":
        rule = f"referee.verifier is none where a script plays (engine.kind={' or '.join(ACTED)})"
        raise InputError(
            rule, cfg.referee.verifier, "set referee.verifier=none referee.evidence=none"
        )


def engines_have_an_address(cfg: Config) -> None:
    """An engine behind HTTP is at an address."""
    for role in cfg.spec.role_blocks:
        engine, key = cfg.block(role).engine, f"{role}.engine.url"
        if engine.kind == "endpoint":
            step = f"e.g. {key}=http://127.0.0.1:8000/v1; its key is in {ENGINE_KEY}"
            check_address(f"{key} (--policy)", engine.url, step)


RULES: tuple[Rule, ...] = (
    engines_have_an_address,
    keys_belong_to_the_kind,
    scripts_are_not_learned_from,
)
