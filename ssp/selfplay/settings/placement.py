"""Which settings of placement may stand together."""

from ssp.base.errors import hold
from ssp.config.crews import bound, players
from ssp.config.engines import kinds
from ssp.config.nodes import parse
from ssp.config.rules import each_role
from ssp.config.schema import Config
from ssp.engines.vllm.setup import LORA_RANKS


def nodes_are_readable(cfg: Config) -> None:
    """`placement.nodes` describes a cluster."""
    if cfg.placement.nodes:
        parse(cfg.placement.nodes)


def shares_fit_the_layout(cfg: Config) -> None:
    """Who shares a GPU takes a part of it; who has a GPU of its own takes it whole. Torch takes only
    the memory that it needs, so engines and learners of torch may share one without turns."""
    place = cfg.placement
    engines, learners = place.engine_gpus, place.learner_gpus
    value = f"layout={place.layout} engine_gpus={engines:g} learner_gpus={learners:g}"
    both = 2 if place.layout == "shared-base" else 1
    shared = 0 < engines and 0 < learners and engines + both * learners <= 1
    if place.layout == "separate":
        rule = (
            "placement.engine_gpus and learner_gpus are 0 or 1 where each has GPUs of its own;"
            " parts of one are for engine.kind=torch with learner.kind=torch"
        )
        parts = True
        for role in cfg.roles:
            block = cfg.block(role)
            parts &= block.engine.traits.model == "needed" and block.learner.kind == "torch"
        whole = {engines, learners} <= {0.0, 1.0}
        hold(parts or whole, rule, value, "set them to 1, or placement.layout=colocate")
    elif place.layout == "colocate":
        rule = (
            "placement.layout=colocate divides each GPU: engine_gpus + learner_gpus is at most 1,"
            " both above 0"
        )
        hold(shared, rule, value, "set placement.engine_gpus=0.5 placement.learner_gpus=0.5")
    elif (engines, learners) != (1.0, 1.0):
        rule = (
            "placement.layout=shared-base gives engines and learners whole GPUs (both 1), or"
            " divides them: engine_gpus + 2 x learner_gpus is at most 1, both above 0"
        )
        hold(shared, rule, value, "set placement.engine_gpus=0.5 placement.learner_gpus=0.25")


@each_role
def turns_are_synchronous(cfg: Config, role: str) -> None:
    """Only vLLM can sleep while its learner works, and nothing is played meanwhile."""
    place, engine, most = cfg.placement, cfg.block(role).engine, bound(cfg, role)
    if place.layout == "separate" or place.engine_gpus == 1:
        return
    kind = kinds("sleeps")
    rule = f"{role}.engine.kind is {kind} for placement.layout={place.layout}"
    rule += ": engines sleep and wake"
    step = f"set defaults.engine.kind={kind}, or layout=separate"
    hold(engine.traits.sleeps, rule, engine.kind, step)
    rule = f"schedule.max_staleness.{role} is 0 where engines and learners take turns"
    hold(most == 0, rule, most, "set the bounds to 0, or placement.layout=separate")


def one_base_serves_both(cfg: Config) -> None:
    """A fleet with an adapter a role has one base model and one set of engine settings."""
    if cfg.placement.layout != "shared-base":
        return
    base = "placement.layout=shared-base plays both roles on one base with an adapter each"
    apart = "placement.layout=separate"
    questions = f"game.questions={cfg.game.questions}"
    hold(len(cfg.roles) == 2, f"{base}, so both play", questions, f"set {apart}")
    for role in cfg.roles:
        block, rank = cfg.block(role), cfg.block(role).learner.lora.rank
        value = f"{role}.policy={block.policy} {role}.learner.lora.rank={rank}"
        step = f"set {role}.policy=own {role}.learner.lora.rank=32"
        hold(block.policy == "own" and rank > 0, base, value, step)
        fitting = kinds("adapters")
        rule = f"{base}: {role}.engine.kind is {fitting}"
        step = f"set defaults.engine.kind={fitting}"
        hold(block.engine.traits.adapters, rule, block.engine.kind, step)
        most = LORA_RANKS[-1]
        rule = f"{base}, of rank {most} at most"
        hold(rank <= most, rule, value, f"set {role}.learner.lora.rank={most}")
    rule = f"{base}: a running turn keeps its adapter"
    step = f"leave it out, or set placement.{apart}"
    hold(not cfg.schedule.in_flight, rule, "schedule.in_flight=true", step)
    rule = f"{base}: a judge's engine takes none"
    step = f"set referee.verifier=judge, or {apart}"
    hold(cfg.referee.verifier != "solver", rule, "referee.verifier=solver", step)
    one, other = (cfg.block(role) for role in cfg.roles)
    models = f"{one.model} and {other.model}"
    hold(one.model == other.model, base, models, "set defaults.model, and no role's own")
    rule = f"{base}, and one engine block"
    step = "set defaults.engine.*, and no role's own"
    hold(one.engine == other.engine, rule, "they differ", step)
    numbers = {role: players(cfg, role) for role in cfg.roles}
    value = ", ".join(f"placement.{role}s={number}" for role, number in numbers.items())
    rule = f"{base}: each engine has a player of both"
    hold(len(set(numbers.values())) == 1, rule, value, "set both to the number of engines")


def shares_of_retrievers(cfg: Config) -> None:
    """GPUs are asked for in whole numbers or as a part of one."""
    gpus = cfg.retriever.gpus
    rule = "retriever.gpus is a part of a GPU, or a whole number of them"
    hold(gpus <= 1 or gpus == int(gpus), rule, f"{gpus:g}", f"set retriever.gpus={int(gpus)}")


RULES = (
    nodes_are_readable,
    shares_fit_the_layout,
    one_base_serves_both,
    turns_are_synchronous,
    shares_of_retrievers,
)
