"""Every process of a run with what it needs, before anything starts; in the data's order."""

from dataclasses import replace

from ssp.base.episode import PROPOSER, SOLVER
from ssp.capacity.memory import engine, learner, threads
from ssp.capacity.memory.needs import MB, Need, Process
from ssp.capacity.memory.shapes import find
from ssp.config import crews
from ssp.config.schema import Config
from ssp.engines.vllm.setup import room
from ssp.game import corpora
from ssp.game.world.files import is_world
from ssp.search.index import store

FLEET = "engine"
"""Process name of the players of both roles, which have one engine
(placement.layout=shared-base)."""
BASE_MB = dict(
    ray=345, dashboard=200, driver=160, policy=215, vllm=590, learner=310, search=85, plain=76
)
"""Megabytes of one process before its data that no file backs: Ray's own together, its dashboard's,
the coordinator, an actor with torch, one with vLLM, one with transformers' models too, one with
numpy, one with none of these. Measured in a quickstart on a 2-core Linux machine, without optional
packages but for vLLM."""
CUDA_MB, CONTEXT_MB = 2500, 600
"""Megabytes that each process on a GPU takes of its host for CUDA's libraries, and of the GPU for
its context."""
SMALL_OBJECTS = 80_000_000
"""Bytes, of which Ray asks for nearly as many at least."""
IN_MEMORY = 7.5
"""Bytes at the peak for each byte of a corpus file that is read and indexed in memory (60,000
documents of 80 words)."""


def processes(cfg: Config, gpu: int = 0) -> list[Process]:
    """All processes but the coordinator and Ray. `gpu`: bytes of the GPUs that engines take a share
    of."""
    place, cpus, plain = cfg.placement, cfg.placement.cpus, tuple(base("plain"))
    judge_gpus, shard_gpus = crews.judge_gpus(cfg), max(1, int(cfg.retriever.gpus))
    if place.layout == "shared-base":
        players = [_fleet(cfg, gpu)]
    else:
        players = [_players(cfg, role, role, gpu, episodes(cfg, role)) for role in cfg.roles]
    asked, on_gpu = judge(cfg, gpu if judge_gpus else 0), cfg.retriever.gpus / shard_gpus
    spread = cfg.solver.engine.tensor_parallel if judge_gpus else 1
    each = (judge_gpus, spread, asked.short, threads.judge(cfg))
    shards, encoders = cfg.retriever.shards * cfg.retriever.replicas, corpora.encoders(cfg)
    return [
        *players,
        Process("judge", place.judges, cpus, asked.needs, *each),
        Process("retriever", shards, cpus, shard(cfg), on_gpu, shard_gpus),
        *(
            [Process("encoder", encoders, cpus, _encoder(cfg), on_gpu, shard_gpus)]
            if encoders
            else []
        ),
        *(_learner(cfg, name, roles) for name, roles in learners(cfg).items()),
        Process("ledger", 1, 0.0, plain),
    ]


def learners(cfg: Config) -> dict[str, tuple[str, ...]]:
    """Process name of each learner → the roles that it trains."""
    return {f"learner-{name}": roles for name, roles in crews.learners(cfg).items()}


def episodes(cfg: Config, role: str) -> int:
    """What one engine of the role plays at a time: its share of a batch, of so many rounds as it
    plays at once."""
    block, players = cfg.block(role), cfg.placement.players[role]
    played = crews.at_once(cfg, role) * -(-block.batch * crews.times(cfg, role) // players)
    if role != cfg.spec.answerer or block.engine.kind != "torch":
        return played
    asked = len(cfg.eval.hops) * cfg.eval.final_questions_per_hop if cfg.data.eval else 0
    # in turn with training, lock step
    return max(played, min(-(-asked // players), crews.evaluated(cfg)))


def notes(cfg: Config) -> list[str]:
    """What is not known of models and corpora that are not here."""
    names = dict.fromkeys([*(cfg.block(role).model for role in cfg.roles), *_encoded(cfg)])
    lacks = [path for path in corpora.paths(cfg) if not path.exists() and not is_world(str(path))]
    told = [f"{path} is not here: what it takes, and an encoder, come on top." for path in lacks]
    return [*(note for name in names if (note := find(name).note)), *told]


def base(kind: str, gpus: float = 0.0) -> list[Need]:
    """The process itself, and on a GPU what CUDA takes."""
    needs = [Need("process", int((BASE_MB[kind] + (CUDA_MB if gpus else 0)) * MB), host=True)]
    return [*needs, Need("context", CONTEXT_MB * MB)] if gpus else needs


def _fleet(cfg: Config, gpu: int) -> Process:
    """Players of both roles on one engine: the solver's settings, the episodes and an adapter of
    each."""
    both, shape = sum(episodes(cfg, role) for role in cfg.roles), find(cfg.solver.model).shape
    loras = [cfg.block(role).learner.lora for role in cfg.roles]
    adapters = 0 if shape is None else len(loras) * shape.adapter(room(loras))
    return _players(cfg, FLEET, SOLVER, gpu, both, adapters)


def _players(
    cfg: Config, name: str, role: str, gpu: int, at_once: int, adapters: int = 0
) -> Process:
    """Players with an engine of `role`."""
    block, place = cfg.block(role), cfg.placement
    gpus, model = crews.gpus(cfg, role)[0], find(block.model)
    found = engine.engine(model, block, at_once, gpu if gpus else 0, adapters)
    vllm = block.engine.kind == "vllm"  # whose context is among its own needs
    needs = [*base("vllm" if vllm else "policy", gpus)[: 1 if vllm else 2], *found.needs]
    if block.engine.kind == "torch" and cfg.transfer.kind == "broadcast":
        needs.append(Need("weights that arrive", model.parameters * learner.FLOAT32, turn=True))
    count, spread = crews.players(cfg, role), block.engine.tensor_parallel if gpus else 1
    return Process(
        name, count, place.cpus, tuple(needs), gpus, spread, found.short, threads.player(cfg, role)
    )


def judge(cfg: Config, gpu: int) -> engine.EngineNeeds:
    """What a judge verifies questions with, where that is an engine of ours, of the solver's
    kind."""
    found = engine.EngineNeeds()
    if cfg.referee.verifier in ("frozen", "solver") and PROPOSER in cfg.roles:
        at_once = -(-cfg.proposer.batch // cfg.placement.judges)
        found = engine.engine(find(cfg.solver.model), cfg.solver, at_once, gpu)
    kind = "vllm" if found.needs and cfg.solver.engine.kind == "vllm" else "policy"
    named = (replace(need, what=f"verifier's {need.what}") for need in found.needs)
    return replace(found, needs=(*base(kind, crews.judge_gpus(cfg)), *named))


def shard(cfg: Config) -> tuple[Need, ...]:
    """A shard's share of an index folder's arrays (its documents stay on disk), or a corpus file,
    indexed whole."""
    size = 0.0
    for path in corpora.paths(cfg):
        if path.is_dir():
            manifest = store.read_manifest(path)
            names = [name for name in manifest.needed if name != store.DOCUMENTS]
            size += sum(int(manifest.files[name]["bytes"]) for name in names) / cfg.retriever.shards
        elif path.is_file():
            size += path.stat().st_size * IN_MEMORY
    return (*base("search", cfg.retriever.gpus), Need("index", int(size)))


def _encoder(cfg: Config) -> tuple[Need, ...]:
    """The encoder of each dense corpus, and the cross-encoder."""
    numbers, gpus = (
        sum(find(model).parameters for model in dict.fromkeys(_encoded(cfg))),
        cfg.retriever.gpus,
    )
    return (*base("policy", gpus), Need("weights", numbers * (2 if gpus else 4)))


def _encoded(cfg: Config) -> list[str]:
    parts = [(path, part) for path in corpora.paths(cfg) if (part := corpora.dense(path))]
    return [corpora.encoder_of(path, part) for path, part in parts] + [
        cfg.retriever.reranker
    ] * bool(cfg.retriever.reranker)


def _learner(cfg: Config, name: str, roles: tuple[str, ...]) -> Process:
    blocks, gpus = [cfg.block(role) for role in roles], crews.gpus(cfg, roles[0])[1]
    model, needs = find(blocks[0].model), tuple[Need, ...]()
    if blocks[0].policy == "frozen":
        needs, gpus = (Need("weights", model.parameters * learner.FLOAT32),), 0.0
    elif blocks[0].learner.kind == "simulated":
        gpus = 0.0
    else:
        needs = learner.rank(model, blocks, gpu=gpus > 0)
    count, many = crews.ranks(cfg, name.removeprefix("learner-")), threads.learner(cfg, roles[0])
    return Process(
        name, count, cfg.placement.cpus, (*base("learner", gpus), *needs), gpus, threads=many
    )


def published(cfg: Config) -> int:
    """Bytes of weights that wait for players, as float32: of each role that learns, as many
    versions as may still be played and one; 0 where each version goes from GPU to GPU. Players on a
    shared base get adapters, by the host."""
    place, kind = cfg.placement, cfg.transfer.kind
    shared = place.layout == "shared-base"
    gpus = (
        kind == "auto"
        and place.engine_gpus
        and place.learner_gpus
        and not shared
        and not crews.takes_turns(cfg)
    )
    # the embedded one takes arrays
    gpus = gpus and all(cfg.block(role).engine.kind == "vllm" for role in cfg.roles)
    if kind == "broadcast" or gpus:
        return 0
    total = 0
    for name, roles in crews.learners(cfg).items():
        block = cfg.block(name)
        # which publishes one number
        if block.policy != "frozen" and block.learner.kind != "simulated":
            model = find(block.model)
            versions = 2 + max(crews.bound(cfg, role) for role in roles)
            numbers = learner.trainable(model, block.learner) if shared else model.parameters
            total += versions * numbers * learner.FLOAT32
    return total


def object_store(cfg: Config) -> int:
    """Bytes of Ray's object store on each node: all batches and weights that may wait in it, and
    room for what is small."""
    return SMALL_OBJECTS + published(cfg) + sum(crews.waiting(cfg, role) for role in cfg.roles)
