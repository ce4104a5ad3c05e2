"""Which settings of placement may stand together."""

from __future__ import annotations

from collections.abc import Callable

from ssp.base.episode import PROPOSER, SOLVER
from ssp.base.errors import InputError
from ssp.config.nodes import parse
from ssp.config.schema import Config
from ssp.engines.vllm.setup import LORA_RANKS


def nodes_are_readable(cfg: Config) -> None:
    """`placement.nodes` describes a cluster."""
    if cfg.placement.nodes:
        parse(cfg.placement.nodes)


def shares_fit_the_layout(cfg: Config) -> None:
    """Who shares a GPU takes a part of it, and who has one of its own takes it whole."""
    place = cfg.placement
    engines, learners = place.engine_gpus, place.learner_gpus
    found = f"layout={place.layout} engine_gpus={engines:g} learner_gpus={learners:g}"
    if place.layout == "separate" and not {engines, learners} <= {0.0, 1.0}:
        rule = "placement.engine_gpus and learner_gpus are 0 or 1 where each has GPUs of its own"
        raise InputError(rule, found, "set them to 1, or placement.layout=colocate")
    both = 2 if place.layout == "shared-base" else 1
    shared = 0 < engines and 0 < learners and engines + both * learners <= 1
    if place.layout == "colocate" and not shared:
        rule = "placement.layout=colocate divides each GPU: engine_gpus + learner_gpus is at most 1, both above 0"
        raise InputError(rule, found, "set placement.engine_gpus=0.5 placement.learner_gpus=0.5")
    if place.layout == "shared-base" and not shared and (engines, learners) != (1.0, 1.0):
        rule = (
            "placement.layout=shared-base gives engines and learners whole GPUs (both 1), or divides them: "
            "engine_gpus + 2 x learner_gpus is at most 1, both above 0"
        )
        raise InputError(rule, found, "set placement.engine_gpus=0.5 placement.learner_gpus=0.25")


def turns_are_synchronous(cfg: Config) -> None:
    """Where an engine sleeps while its learner works, nothing is played meanwhile, and only vLLM can sleep."""
    place = cfg.placement
    if place.layout == "separate" or place.engine_gpus == 1:
        return
    for role in cfg.roles:
        if cfg.block(role).engine.kind != "vllm":
            rule = f"{role}.engine.kind is vllm for placement.layout={place.layout}: engines sleep and wake"
            raise InputError(rule, cfg.block(role).engine.kind, "set defaults.engine.kind=vllm, or layout=separate")
        if bound := getattr(cfg.schedule.max_staleness, role):
            rule = f"schedule.max_staleness.{role} is 0 where engines and learners take turns"
            raise InputError(rule, bound, "set the bounds to 0, or placement.layout=separate")


def one_base_serves_both(cfg: Config) -> None:
    """A fleet with an adapter a role has one base model and one set of engine settings."""
    if cfg.placement.layout != "shared-base":
        return
    rule = "placement.layout=shared-base plays both roles on one base with an adapter each"
    if PROPOSER not in cfg.roles:
        raise InputError(
            f"{rule}, so both play", f"game.questions={cfg.game.questions}", "set placement.layout=separate"
        )
    for role in cfg.roles:
        block = cfg.block(role)
        if block.policy != "own" or block.learner.lora.rank == 0:
            found = f"{role}.policy={block.policy} {role}.learner.lora.rank={block.learner.lora.rank}"
            raise InputError(rule, found, f"set {role}.policy=own {role}.learner.lora.rank=32")
        if block.engine.kind != "vllm":
            raise InputError(f"{rule}: {role}.engine.kind is vllm", block.engine.kind, "set defaults.engine.kind=vllm")
        if block.learner.lora.rank > LORA_RANKS[-1]:
            found = f"{role}.learner.lora.rank={block.learner.lora.rank}"
            raise InputError(f"{rule}, of rank {LORA_RANKS[-1]} at most", found, f"set {role}.learner.lora.rank=64")
    if cfg.schedule.in_flight:
        step = "leave schedule.in_flight out, or set placement.layout=separate"
        raise InputError(f"{rule}: a running turn keeps its adapter", "schedule.in_flight=true", step)
    if cfg.referee.verifier == SOLVER:
        step = "set referee.verifier=judge, or placement.layout=separate"
        raise InputError(f"{rule}: a judge's engine takes none", "referee.verifier=solver", step)
    if cfg.proposer.model != cfg.solver.model:
        raise InputError(rule, f"{cfg.proposer.model} and {cfg.solver.model}", "set defaults.model, and no role's own")
    if cfg.proposer.engine != cfg.solver.engine:
        raise InputError(f"{rule}, and one engine block", "they differ", "set defaults.engine.*, and no role's own")
    if cfg.placement.proposers != cfg.placement.solvers:
        found = f"placement.proposers={cfg.placement.proposers}, solvers={cfg.placement.solvers}"
        raise InputError(f"{rule}: each engine has a player of both", found, "set both to the number of engines")


def shares_have_a_use(cfg: Config) -> None:
    """GPUs are asked for by what can compute on them, in whole numbers or as a part of one."""
    place = cfg.placement
    for key, gpus in (("placement.judge_gpus", place.judge_gpus), ("retriever.gpus", cfg.retriever.gpus)):
        if gpus > 1 and gpus != int(gpus):
            raise InputError(
                f"{key} is a part of a GPU, or a whole number of them", f"{gpus:g}", f"set {key}={int(gpus)}"
            )
    for role in cfg.roles:
        if place.engine_gpus and cfg.block(role).engine.kind == "endpoint":
            found = f"{role}.engine.kind=endpoint with {place.engine_gpus:g}"
            raise InputError(
                "placement.engine_gpus belongs to engines of our own", found, "set placement.engine_gpus=0"
            )
    verifies = cfg.referee.verifier in ("frozen", "solver") and PROPOSER in cfg.roles
    asks = verifies or cfg.judge.kind == "engine"
    if place.judge_gpus and not asks:
        found = f"judge_gpus={place.judge_gpus:g}, judge.kind={cfg.judge.kind}, referee.verifier={cfg.referee.verifier}"
        raise InputError("placement.judge_gpus belongs to judges with an engine", found, "set placement.judge_gpus=0")
    if asks and place.engine_gpus and not place.judge_gpus and cfg.solver.engine.kind == "vllm":
        rule = "a judge with an engine computes as the solver does: on GPUs"
        found = f"judge_gpus=0, judge.kind={cfg.judge.kind}, referee.verifier={cfg.referee.verifier}"
        raise InputError(rule, found, "set placement.judge_gpus=1, or referee.verifier=judge and judge.kind=llm")


RULES: tuple[Callable[[Config], None], ...] = (
    nodes_are_readable,
    shares_fit_the_layout,
    one_base_serves_both,
    turns_are_synchronous,
    shares_have_a_use,
)
