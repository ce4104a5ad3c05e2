"""Every process of a run with what it needs, before anything starts.

Owns the list, in the data's order. Promises bytes a part, on the device and on the host. Refuses to place anything
(`ssp.capacity.placement`) and to import Ray or torch.
"""

from __future__ import annotations

from ssp.base.episode import PROPOSER, SOLVER
from ssp.capacity.memory import engine, learner, services, threads
from ssp.capacity.memory.needs import Process
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
    place = cfg.placement
    cpus = place.cpus
    held = "hands over references: one batch queue a role"
    return [
        *([_fleet(cfg, gpu)] if place.layout == "shared-base" else [_player(cfg, role, gpu) for role in cfg.roles]),
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
    cpus, gpus, block = cfg.placement.cpus, cfg.placement.engine_gpus, cfg.block(role)
    found = engine.engine(find(block.model), block, episodes(cfg, role), gpu if gpus else 0)
    needs = (*base("policy", gpus)[: 1 if block.engine.kind == "vllm" else 2], *found.needs)
    spread = block.engine.tensor_parallel if gpus else 1
    many = threads.player(cfg, role)
    return Process(role, count, cpus, task, needs, gpus, spread, found.note, found.short, many)


def _fleet(cfg: Config, gpu: int) -> Process:
    """Players of both roles on one engine: the solver's settings, the episodes and an adapter of each."""
    place, block = cfg.placement, cfg.solver
    both, model = sum(episodes(cfg, role) for role in cfg.roles), find(block.model)
    loras = [cfg.block(role).learner.lora for role in cfg.roles]
    layers = sorted({name for lora in loras for name in lora.targets})
    adapters = 0 if model.shape is None else len(loras) * model.shape.adapter(room(loras), layers)
    found = engine.engine(model, block, both, gpu if place.engine_gpus else 0, adapters)
    needs = (*base("policy", place.engine_gpus)[:1], *found.needs)
    task = "asks and answers: both roles on one base, an adapter each"
    spread = block.engine.tensor_parallel if place.engine_gpus else 1
    return Process(
        FLEET,
        place.solvers,
        place.cpus,
        task,
        needs,
        place.engine_gpus,
        spread,
        found.note,
        found.short,
        threads.player(cfg, SOLVER),
    )


def _judge(cfg: Config, gpu: int) -> Process:
    place = cfg.placement
    task = "checks questions (rules, evidence), grades answers" if PROPOSER in cfg.roles else "grades answers"
    found, spread = services.judge(cfg, gpu if place.judge_gpus else 0), max(1, int(place.judge_gpus))
    share = place.judge_gpus / spread
    return Process(
        "judge", place.judges, place.cpus, task, found.needs, share, spread, found.note, found.short, threads.judge(cfg)
    )


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
    model = find(blocks[0].model)
    if blocks[0].policy == "frozen":
        needs, gpus, task = learner.frozen(model), 0.0, "holds the frozen policy"
    elif blocks[0].learner.kind == "simulated":
        needs, gpus, task = (), 0.0, "waits as long as an update would take"
    else:
        needs = learner.rank(model, blocks, gpu=gpus > 0)
        task = "updates the policy of both roles" if len(roles) > 1 else f"updates the {roles[0]}'s policy"
    return Process(
        name,
        crews.ranks(cfg, name.removeprefix("learner-")),
        cfg.placement.cpus,
        task,
        (*base("learner", gpus), *needs),
        gpus,
        threads=threads.learner(cfg, roles[0]),
    )
