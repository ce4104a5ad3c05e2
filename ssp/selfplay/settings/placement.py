"""Which settings of placement may stand together."""

from ssp.base.errors import hold
from ssp.config.crews import bound, players
from ssp.config.nodes import parse
from ssp.config.rules import each_role
from ssp.config.schema import Config
from ssp.engines.vllm.setup import LORA_RANKS


def nodes_are_readable(cfg: Config) -> None:
    """`placement.nodes` describes a cluster."""
    if cfg.placement.nodes:
        parse(cfg.placement.nodes)


def shares_fit_the_layout(cfg: Config) -> None:
    """Who shares a GPU takes a part of it, and who has one of its own takes it whole. Torch alone
    takes only the memory that it needs, so it may share one without taking turns."""
    place = cfg.placement
    engines, learners = place.engine_gpus, place.learner_gpus
    found = f"layout={place.layout} engine_gpus={engines:g} learner_gpus={learners:g}"
    both = 2 if place.layout == "shared-base" else 1
    shared = 0 < engines and 0 < learners and engines + both * learners <= 1
    if place.layout == "separate":
        rule = (
            "placement.engine_gpus and learner_gpus are 0 or 1 where each has GPUs of its own;"
            " parts of one are for "
        )
        rule += "engine.kind=torch with learner.kind=torch"
        alone = all(
            {cfg.block(role).engine.kind, cfg.block(role).learner.kind} == {"torch"}
            for role in cfg.roles
        )
        hold(
            alone or {engines, learners} <= {0.0, 1.0},
            rule,
            found,
            "set them to 1, or placement.layout=colocate",
        )
    elif place.layout == "colocate":
        rule = (
            "placement.layout=colocate divides each GPU: engine_gpus + learner_gpus is at most 1,"
            " both above 0"
        )
        hold(shared, rule, found, "set placement.engine_gpus=0.5 placement.learner_gpus=0.5")
    elif (engines, learners) != (1.0, 1.0):
        rule = (
            "placement.layout=shared-base gives engines and learners whole GPUs (both 1), or"
            " divides them: "
        )
        rule += "engine_gpus + 2 x learner_gpus is at most 1, both above 0"
        hold(shared, rule, found, "set placement.engine_gpus=0.5 placement.learner_gpus=0.25")


@each_role
def turns_are_synchronous(cfg: Config, role: str) -> None:
    """Where an engine sleeps while its learner works, nothing is played meanwhile, and only vLLM
    can sleep."""
    place, kind, most = cfg.placement, cfg.block(role).engine.kind, bound(cfg, role)
    if place.layout == "separate" or place.engine_gpus == 1:
        return
    rule = f"{role}.engine.kind is vllm for placement.layout={place.layout}: engines sleep and wake"
    hold(kind == "vllm", rule, kind, "set defaults.engine.kind=vllm, or layout=separate")
    rule = f"schedule.max_staleness.{role} is 0 where engines and learners take turns"
    hold(most == 0, rule, most, "set the bounds to 0, or placement.layout=separate")


def one_base_serves_both(cfg: Config) -> None:
    """A fleet with an adapter a role has one base model and one set of engine settings."""
    if cfg.placement.layout != "shared-base":
        return
    apart = "placement.layout=separate"
    rule = "placement.layout=shared-base plays both roles on one base with an adapter each"
    hold(
        len(cfg.roles) == 2,
        f"{rule}, so both play",
        f"game.questions={cfg.game.questions}",
        f"set {apart}",
    )
    for role in cfg.roles:
        _has_an_adapter(cfg, role, rule)
    step = f"leave it out, or set placement.{apart}"
    hold(
        not cfg.schedule.in_flight,
        f"{rule}: a running turn keeps its adapter",
        "schedule.in_flight=true",
        step,
    )
    step = f"set referee.verifier=judge, or {apart}"
    hold(
        cfg.referee.verifier != "solver",
        f"{rule}: a judge's engine takes none",
        "referee.verifier=solver",
        step,
    )
    one, other = (cfg.block(role) for role in cfg.roles)
    found = f"{one.model} and {other.model}"
    hold(one.model == other.model, rule, found, "set defaults.model, and no role's own")
    alike = one.engine == other.engine
    hold(
        alike,
        f"{rule}, and one engine block",
        "they differ",
        "set defaults.engine.*, and no role's own",
    )
    numbers = {role: players(cfg, role) for role in cfg.roles}
    found = ", ".join(f"placement.{role}s={number}" for role, number in numbers.items())
    rule = f"{rule}: each engine has a player of both"
    hold(len(set(numbers.values())) == 1, rule, found, "set both to the number of engines")


def _has_an_adapter(cfg: Config, role: str, rule: str) -> None:
    block, rank = cfg.block(role), cfg.block(role).learner.lora.rank
    found = f"{role}.policy={block.policy} {role}.learner.lora.rank={rank}"
    hold(
        block.policy == "own" and rank > 0,
        rule,
        found,
        f"set {role}.policy=own {role}.learner.lora.rank=32",
    )
    kind = block.engine.kind
    hold(
        kind == "vllm",
        f"{rule}: {role}.engine.kind is vllm",
        kind,
        "set defaults.engine.kind=vllm",
    )
    most = LORA_RANKS[-1]
    hold(
        rank <= most,
        f"{rule}, of rank {most} at most",
        found,
        f"set {role}.learner.lora.rank={most}",
    )


def shares_of_retrievers(cfg: Config) -> None:
    """GPUs are asked for in whole numbers or as a part of one."""
    gpus, rule = cfg.retriever.gpus, "retriever.gpus is a part of a GPU, or a whole number of them"
    hold(gpus <= 1 or gpus == int(gpus), rule, f"{gpus:g}", f"set retriever.gpus={int(gpus)}")


RULES = (
    nodes_are_readable,
    shares_fit_the_layout,
    one_base_serves_both,
    turns_are_synchronous,
    shares_of_retrievers,
)
