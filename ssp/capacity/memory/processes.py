"""Every process of a run with what it needs, before anything starts; in the data's order."""

from __future__ import annotations

from ssp.base.episode import PROPOSER, SOLVER
from ssp.capacity.memory import engine, learner, services, threads
from ssp.capacity.memory.needs import Need, Process
from ssp.capacity.memory.services import base
from ssp.capacity.memory.shapes import find
from ssp.config import crews
from ssp.config.schema import Config
from ssp.engines.vllm.setup import room
from ssp.game import corpora

FLEET = "engine"
"""Process name of the players of both roles, which have one engine (placement.layout=shared-base)."""


def processes(cfg: Config, gpu: int = 0) -> list[Process]:
    """All processes but the coordinator and Ray. `gpu`: bytes of the GPUs that engines take a share of."""
    cpus = cfg.placement.cpus
    held = "hands over references: one batch queue a role"
    return [
        *([_fleet(cfg, gpu)] if cfg.placement.layout == "shared-base" else [_player(cfg, r, gpu) for r in cfg.roles]),
        _judge(cfg, gpu),
        *_retriever(cfg),
        *(_learner(cfg, name, roles) for name, roles in learners(cfg).items()),
        Process("queue", len(cfg.roles), cpus, held, tuple(base("plain"))),
        Process("ledger", 1, 0.0, "every episode's state and cause (SQLite)", tuple(base("plain"))),
    ]


def learners(cfg: Config) -> dict[str, tuple[str, ...]]:
    """Process name of each learner → the roles that it trains."""
    return {f"learner-{name}": roles for name, roles in crews.learners(cfg).items()}


def episodes(cfg: Config, role: str) -> int:
    """What one engine of the role plays at a time: its share of a batch, of so many rounds as it plays at once."""
    blocks = crews.at_once(cfg, role)
    if role == PROPOSER:
        return blocks * -(-cfg.proposer.batch // cfg.placement.proposers)
    return blocks * -(-cfg.solver.batch * cfg.game.attempts // cfg.placement.solvers)


def notes(cfg: Config) -> list[str]:
    """What was guessed of models that are not here, and where the object store is small."""
    names = [cfg.block(role).model for role in cfg.roles] + [cfg.judge.model] * (cfg.judge.kind == "engine")
    found = [note for name in dict.fromkeys(names) if (note := find(name).note)]
    wanted, there = services.published(cfg), cfg.ray.object_store_mb * 10**6
    if wanted > there and cfg.transfer.kind == "object_store":
        found.append(
            f"Weights on their way to players take {wanted / 1e6:.0f} MB: ray.object_store_mb={cfg.ray.object_store_mb} "
            "makes Ray spill them to disk."
        )
    return found


def _player(cfg: Config, role: str, gpu: int) -> Process:
    count = cfg.placement.proposers if role == PROPOSER else cfg.placement.solvers
    task = "searches and asks a question" if role == PROPOSER else "searches and answers"
    return _playing(cfg, role, role, count, task, gpu, episodes(cfg, role))


def _fleet(cfg: Config, gpu: int) -> Process:
    """Players of both roles on one engine: the solver's settings, the episodes and an adapter of each."""
    both, shape = sum(episodes(cfg, role) for role in cfg.roles), find(cfg.solver.model).shape
    loras = [cfg.block(role).learner.lora for role in cfg.roles]
    layers = sorted({name for lora in loras for name in lora.targets})
    adapters = 0 if shape is None else len(loras) * shape.adapter(room(loras), layers)
    task = "asks and answers: both roles on one base, an adapter each"
    return _playing(cfg, FLEET, SOLVER, cfg.placement.solvers, task, gpu, both, adapters)


def _playing(
    cfg: Config, name: str, role: str, count: int, task: str, gpu: int, at_once: int, adapters: int = 0
) -> Process:
    """Players with an engine of `role`."""
    block, gpus = cfg.block(role), cfg.placement.engine_gpus
    model = find(block.model)
    found = engine.engine(model, block, at_once, gpu if gpus else 0, adapters)
    needs = [*base("policy", gpus)[: 1 if block.engine.kind == "vllm" else 2], *found.needs]
    if block.engine.kind == "torch" and cfg.transfer.kind == "broadcast":
        needs.append(Need("weights that arrive", model.parameters * learner.FLOAT32, turn=True))
    spread, many = block.engine.tensor_parallel if gpus else 1, threads.player(cfg, role)
    return Process(name, count, cfg.placement.cpus, task, tuple(needs), gpus, spread, found.note, found.short, many)


def _judge(cfg: Config, gpu: int) -> Process:
    place = cfg.placement
    task = "checks questions (rules, evidence), grades answers" if PROPOSER in cfg.roles else "grades answers"
    found, spread = services.judge(cfg, gpu if place.judge_gpus else 0), max(1, int(place.judge_gpus))
    gpus, many = place.judge_gpus / spread, threads.judge(cfg)
    return Process("judge", place.judges, place.cpus, task, found.needs, gpus, spread, found.note, found.short, many)


def _retriever(cfg: Config) -> list[Process]:
    block, cpus = cfg.retriever, cfg.placement.cpus
    copies = f", {block.replicas} copies each" if block.replicas > 1 else ""
    spread = max(1, int(block.gpus))
    gpus = block.gpus / spread
    task = f"searches one shard of each corpus{copies}"
    found = [Process("retriever", block.shards * block.replicas, cpus, task, services.shard(cfg), gpus, spread)]
    if count := corpora.encoders(cfg):
        task = "encodes queries, reranks documents"
        found.append(Process("encoder", count, cpus, task, services.encoder(cfg), gpus, spread))
    return found


def _learner(cfg: Config, name: str, roles: tuple[str, ...]) -> Process:
    blocks, gpus = [cfg.block(role) for role in roles], cfg.placement.learner_gpus
    model, needs = find(blocks[0].model), tuple[Need, ...]()
    if blocks[0].policy == "frozen":
        needs, gpus, task = (Need("weights", model.parameters * learner.FLOAT32),), 0.0, "holds the frozen policy"
    elif blocks[0].learner.kind == "simulated":
        gpus, task = 0.0, "waits as long as an update would take"
    else:
        needs = learner.rank(model, blocks, gpu=gpus > 0)
        task = "updates the policy of both roles" if len(roles) > 1 else f"updates the {roles[0]}'s policy"
    count, many = crews.ranks(cfg, name.removeprefix("learner-")), threads.learner(cfg, roles[0])
    return Process(name, count, cfg.placement.cpus, task, (*base("learner", gpus), *needs), gpus, threads=many)
