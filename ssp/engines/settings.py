"""Which settings of an engine go with which kind of it."""

from dataclasses import fields

from ssp.base.errors import InputError, hold
from ssp.base.services import ENGINE_KEY
from ssp.config.role import ACTED, EngineConfig
from ssp.config.rules import Rule, check_address, each_block, each_role
from ssp.config.schema import Config

KEYS = {
    "device": ("torch",),
    "tensor_parallel": ("vllm",),
    "memory": ("vllm",),
    "sequences": ("vllm", "simulated"),
    "url": ("endpoint",),
    "simulated": ACTED,
}
"""The kinds that a key means something to; a key that is not here means something to all."""


@each_block
def keys_belong_to_the_kind(cfg: Config, role: str) -> None:
    """A key of another kind has its default: it would do nothing."""
    engine, standard = cfg.block(role).engine, EngineConfig()
    for item in fields(EngineConfig):
        value, kinds = getattr(engine, item.name), KEYS.get(item.name, (engine.kind,))
        if engine.kind not in kinds and value != getattr(standard, item.name):
            key = f"{role}.engine.{item.name}"
            rule = f"{key} belongs to engine.kind={' or '.join(kinds)}"
            found = f"{value} with engine.kind={engine.kind}"
            step = f"leave {key} out, or set {role}.engine.kind={kinds[0]}"
            raise InputError(rule, found, step)


@each_role
def scripts_are_not_learned_from(cfg: Config, role: str) -> None:
    """What a script says has no probability and recalls nothing, so who learns from it only
    pretends to."""
    block, scripts = cfg.block(role), " or ".join(ACTED)
    acted = block.engine.kind in ACTED
    rule = f"{role}.learner.kind is simulated where {role}.engine.kind is {scripts}, and only there"
    found = f"engine.kind={block.engine.kind}, learner.kind={block.learner.kind}"
    step = f"set {role}.learner.kind={'simulated' if acted else 'torch'}"
    hold(acted == (block.learner.kind == "simulated"), rule, found, step)
    rule = f"{role}.search.kind is retriever where a script plays"
    step = f"set {role}.search.kind=retriever"
    hold(not acted or block.search.kind == "retriever", rule, block.search.kind, step)


def scripts_are_not_verified(cfg: Config) -> None:
    """A script's questions have no true answer: a verifier that reads would reject them, or play a
    script itself."""
    acted = any(cfg.block(role).engine.kind in ACTED for role in cfg.roles)
    rule = f"referee.verifier is none where a script plays (engine.kind={' or '.join(ACTED)})"
    free = not (acted and cfg.spec.asker) or cfg.referee.verifier == "none"
    step = "set referee.verifier=none referee.evidence=none"
    hold(free, rule, cfg.referee.verifier, step)


@each_block
def engines_have_an_address(cfg: Config, role: str) -> None:
    """An engine behind HTTP is at an address."""
    engine, key = cfg.block(role).engine, f"{role}.engine.url"
    if engine.kind == "endpoint":
        step = f"e.g. {key}=http://127.0.0.1:8000/v1; its key is in {ENGINE_KEY}"
        check_address(f"{key} (--policy)", engine.url, step)


RULES: tuple[Rule, ...] = (
    engines_have_an_address,
    keys_belong_to_the_kind,
    scripts_are_not_learned_from,
    scripts_are_not_verified,
)
