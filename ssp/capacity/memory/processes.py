"""Every process of a run with what it needs, before anything starts; in the data's order."""

from dataclasses import replace

from ssp.base.shape import NAMES
from ssp.capacity.memory import engine, learner, threads
from ssp.capacity.memory.needs import MB, Need, Process, share
from ssp.capacity.memory.shapes import find
from ssp.config import crews
from ssp.config.schema import Config
from ssp.engines.vllm.setup import room
from ssp.game import corpora
from ssp.game.world.files import is_world
from ssp.search.index import store

FLEET = "engine"
"""Name of the players' process where all roles share one engine (placement.layout=shared-base)."""
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
    place = cfg.placement
    if place.layout == "shared-base":
        # One engine with the settings of who answers, and the episodes and an adapter of each role.
        together = sum(episodes(cfg, role) for role in cfg.roles)
        shape = find(cfg.answering.model).shape
        loras = [cfg.block(role).learner.lora for role in cfg.roles]
        adapters = 0 if shape is None else len(loras) * shape.adapter(room(loras))
        listed = [_players(cfg, FLEET, cfg.spec.answerer, gpu, together, adapters)]
    else:
        listed = [_players(cfg, role, role, gpu, episodes(cfg, role)) for role in cfg.roles]

    verifier_gpus = crews.judge_gpus(cfg)
    verifier = judge(cfg, gpu if verifier_gpus else 0)
    spread = cfg.answering.engine.tensor_parallel if verifier_gpus else 1
    listed.append(
        Process(
            "judge",
            place.judges,
            place.cpus,
            verifier.needs,
            verifier_gpus,
            spread,
            verifier.short,
            threads.judge(cfg),
        )
    )

    spread = max(1, int(cfg.retriever.gpus))
    gpus = cfg.retriever.gpus / spread
    shards = cfg.retriever.shards * cfg.retriever.replicas
    listed.append(Process("retriever", shards, place.cpus, shard(cfg), gpus, spread))
    encoders = corpora.encoders(cfg)
    if encoders:
        parameters = sum(find(model).parameters for model in dict.fromkeys(_encoded(cfg)))
        weights = Need("weights", parameters * (2 if gpus else 4))
        needs = (*base("policy", gpus), weights)
        listed.append(Process("encoder", encoders, place.cpus, needs, gpus, spread))

    listed += [_learner(cfg, name, roles) for name, roles in learners(cfg).items()]
    listed.append(Process("ledger", 1, 0.0, tuple(base("plain"))))
    return listed


def learners(cfg: Config) -> dict[str, tuple[str, ...]]:
    """Process name of each learner → the roles that it trains."""
    return {f"learner-{name}": roles for name, roles in crews.learners(cfg).items()}


def episodes(cfg: Config, role: str) -> int:
    """Episodes that one engine of the role plays at a time: its share of the batches that it plays
    at once."""
    players = cfg.placement.players[role]
    trained = crews.at_once(cfg, role) * share(crews.played(cfg, role), players)
    if role != cfg.spec.answerer or cfg.block(role).engine.kind != "torch" or not cfg.data.eval:
        return trained
    # An evaluation is played in turn with training, and in lock step.
    questions = len(cfg.eval.hops) * cfg.eval.final_questions_per_hop
    evaluated = min(share(questions, players), crews.evaluated(cfg))
    return max(trained, evaluated)


def notes(cfg: Config) -> list[str]:
    """What is not known of models and corpora that are not here."""
    policies = dict.fromkeys(cfg.block(role).model for role in cfg.roles)
    told = [find(model).note for model in dict.fromkeys([*policies, *_encoded(cfg)])]
    for model in map(find, policies):
        if model.shape is None and model.parameters:
            rest = "its cache and activations come on top"
            told.append(f"{model.name} is none of {NAMES}, whose layers the plan knows: {rest}.")
    for path in corpora.paths(cfg):
        if not path.exists() and not is_world(str(path)):
            told.append(f"{path} is not here: what it takes, and an encoder, come on top.")
    return [note for note in told if note]


def base(kind: str, gpus: float = 0.0) -> list[Need]:
    """The process itself, and on a GPU what CUDA takes."""
    if not gpus:
        return [Need("process", BASE_MB[kind] * MB, host=True)]
    host = (BASE_MB[kind] + CUDA_MB) * MB
    return [Need("process", host, host=True), Need("context", CONTEXT_MB * MB)]


def _players(
    cfg: Config, name: str, role: str, gpu: int, at_once: int, adapters: int = 0
) -> Process:
    """Players with an engine of `role`."""
    block = cfg.block(role)
    gpus, _ = crews.gpus(cfg, role)
    own = engine.engine(find(block.model), block, at_once, gpu if gpus else 0, adapters)
    if block.engine.traits.model == "share":  # whose context is among its own needs
        needs = base("vllm", gpus)[:1]
    else:
        needs = base("policy", gpus)
    return Process(
        name,
        crews.players(cfg, role),
        cfg.placement.cpus,
        (*needs, *own.needs),
        gpus,
        block.engine.tensor_parallel if gpus else 1,
        own.short,
        threads.player(cfg, role),
    )


def judge(cfg: Config, gpu: int) -> engine.EngineNeeds:
    """What a judge verifies questions with, where that is an engine of ours. It is of the kind of
    who answers."""
    own = engine.EngineNeeds()
    if cfg.referee.verifier in ("frozen", "solver") and cfg.spec.refereed:
        at_once = share(cfg.asking.batch, cfg.placement.judges) * cfg.referee.samples
        model = find(cfg.referee.model or cfg.answering.model)
        own = engine.engine(model, cfg.answering, at_once, gpu)
    kind = "vllm" if own.needs and cfg.answering.engine.traits.model == "share" else "policy"
    named = [replace(need, what=f"verifier's {need.what}") for need in own.needs]
    return replace(own, needs=(*base(kind, crews.judge_gpus(cfg)), *named))


def shard(cfg: Config) -> tuple[Need, ...]:
    """A shard's share of an index folder's arrays (its documents stay on disk), or a corpus file,
    indexed whole."""
    size = 0.0
    for path in corpora.paths(cfg):
        if path.is_dir():
            manifest = store.read_manifest(path)
            names = [name for name in manifest.needed if name != store.DOCUMENTS]
            arrays = sum(int(manifest.files[name]["bytes"]) for name in names)
            size += arrays / cfg.retriever.shards
        elif path.is_file():
            size += path.stat().st_size * IN_MEMORY
    return (*base("search", cfg.retriever.gpus), Need("index", int(size)))


def _encoded(cfg: Config) -> list[str]:
    """The encoder of each dense corpus, and the cross-encoder."""
    models = []
    for path in corpora.paths(cfg):
        part = corpora.dense(path)
        if part:
            models.append(corpora.encoder_of(path, part))
    if cfg.retriever.reranker:
        models.append(cfg.retriever.reranker)
    return models


def _learner(cfg: Config, name: str, roles: tuple[str, ...]) -> Process:
    """The ranks of a learner."""
    blocks = [cfg.block(role) for role in roles]
    model = find(blocks[0].model)
    _, gpus = crews.gpus(cfg, roles[0])
    needs: tuple[Need, ...] = ()
    if blocks[0].policy == "frozen":
        gpus = 0.0
        needs = (Need("weights", model.parameters * learner.FLOAT32),)
    elif blocks[0].learner.kind == "simulated":
        gpus = 0.0
    else:
        needs = learner.rank(model, blocks, gpu=gpus > 0)
    return Process(
        name,
        crews.ranks(cfg, name.removeprefix("learner-")),
        cfg.placement.cpus,
        (*base("learner", gpus), *needs),
        gpus,
        threads=threads.learner(cfg, roles[0]),
    )


def published(cfg: Config) -> int:
    """Bytes of weights that wait for players, as float32: of each role that learns, as many
    versions as may still be played and one. Players on a shared base get adapters."""
    total = 0
    for name, roles in crews.learners(cfg).items():
        block = cfg.block(name)
        if block.policy == "frozen" or block.learner.kind == "simulated":
            continue  # which publishes one number
        model = find(block.model)
        numbers = model.parameters
        if cfg.placement.layout == "shared-base":
            numbers = learner.trainable(model, block.learner)
        versions = 2 + max(crews.bound(cfg, role) for role in roles)
        total += versions * numbers * learner.FLOAT32
    return total


def object_store(cfg: Config) -> int:
    """Bytes of Ray's object store on each node: all batches and weights that may wait in it, and
    room for what is small."""
    batches = sum(crews.waiting(cfg, role) for role in cfg.roles)
    return SMALL_OBJECTS + published(cfg) + batches
