"""Which settings of an engine go with which kind of it."""

from dataclasses import fields

from ssp.base.errors import InputError, hold
from ssp.base.services import ENGINE_KEY
from ssp.config.engines import KINDS, kinds
from ssp.config.role import EngineConfig
from ssp.config.rules import Rule, check_address, each_block, each_role
from ssp.config.schema import Config


@each_block
def keys_belong_to_the_kind(cfg: Config, role: str) -> None:
    """InputError for a key of another kind that is set: it would do nothing. A learner reads
    `device` too."""
    block = cfg.block(role)
    engine = block.engine
    standard = EngineConfig()
    learned = engine.traits.loads and not engine.traits.acted and block.policy != "frozen"
    for item in fields(EngineConfig):
        name = item.name
        value = getattr(engine, name)
        readers = [kind for kind, traits in KINDS.items() if name in traits.keys]
        if not readers or (name == "device" and learned):
            continue
        if engine.kind not in readers and value != getattr(standard, name):
            key = f"{role}.engine.{name}"
            rule = f"{key} belongs to engine.kind={' or '.join(readers)}"
            step = f"leave {key} out, or set {role}.engine.kind={readers[0]}"
            raise InputError(rule, f"{value} with engine.kind={engine.kind}", step)


@each_role
def scripts_are_not_learned_from(cfg: Config, role: str) -> None:
    """InputError where a learner is made for a script, whose words have no probability: who learns
    from it only pretends to. A script recalls nothing either."""
    block = cfg.block(role)
    engine = block.engine.kind
    learner = block.learner.kind
    acted = block.engine.traits.acted
    rule = f"{role}.learner.kind is simulated where {role}.engine.kind is {kinds('acted')}"
    rule += ", and only there"
    fitting = "simulated" if acted else "torch"
    both = f"engine.kind={engine}, learner.kind={learner}"
    hold(acted == (learner == "simulated"), rule, both, f"set {role}.learner.kind={fitting}")
    rule = f"{role}.search.kind is retriever where a script plays"
    step = f"set {role}.search.kind=retriever"
    hold(not acted or block.search.kind == "retriever", rule, block.search.kind, step)


def scripts_are_not_verified(cfg: Config) -> None:
    """InputError for a verifier of a script's questions. These have no true answer: a verifier that
    reads would reject them, or play a script itself."""
    acted = any(cfg.block(role).engine.traits.acted for role in cfg.roles)
    if acted and cfg.spec.asker:
        verifier = cfg.referee.verifier
        rule = f"referee.verifier is none where a script plays (engine.kind={kinds('acted')})"
        step = "set referee.verifier=none referee.evidence=none"
        hold(verifier == "none", rule, verifier, step)


@each_block
def engines_have_an_address(cfg: Config, role: str) -> None:
    """InputError for an engine behind HTTP without an address."""
    engine = cfg.block(role).engine
    if "url" in engine.traits.keys:
        key = f"{role}.engine.url"
        step = f"e.g. {key}=http://127.0.0.1:8000/v1; its key is in {ENGINE_KEY}"
        check_address(f"{key} (--policy)", engine.url, step)


RULES: tuple[Rule, ...] = (
    engines_have_an_address,
    keys_belong_to_the_kind,
    scripts_are_not_learned_from,
    scripts_are_not_verified,
)
