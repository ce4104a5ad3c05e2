"""What the processes beside policies need: retriever shards, encoders, judges."""

from __future__ import annotations

from dataclasses import replace

from ssp.base.episode import PROPOSER
from ssp.capacity.memory import engine as engines
from ssp.capacity.memory.learner import FLOAT32, trainable
from ssp.capacity.memory.needs import MB, Need
from ssp.capacity.memory.shapes import find
from ssp.config.crews import learners, takes_turns
from ssp.config.schema import Config
from ssp.game import corpora
from ssp.search.index import store

BASE_MB = {"ray": 345, "dashboard": 200, "driver": 160, "policy": 215, "learner": 310, "search": 85, "plain": 76}
"""Megabytes of one process before its data that no file backs: Ray's own together, its dashboard's, the coordinator, an
actor with torch, one with transformers' models too, one with numpy, one with none of these. Measured in a
quickstart on a 2-core Linux machine without optional packages, whose processes took 3358 MB together at their peak.
transformers takes scikit-learn and DeepSpeed along where they are installed, 75 MB more in a learner."""

CUDA_MB = 2500
"""Host megabytes that CUDA's libraries take in each process that uses a GPU."""

CONTEXT_MB = 600
"""Megabytes of a GPU that each process on it takes for its CUDA context."""

IN_MEMORY = 7.5
"""Bytes at the peak for each byte of a corpus file that is read and indexed in memory (60,000 documents of 80 words)."""


def base(kind: str, gpus: float = 0.0) -> list[Need]:
    """The process itself, and on a GPU what CUDA takes."""
    needs = [Need("process", int((BASE_MB[kind] + (CUDA_MB if gpus else 0)) * MB), host=True)]
    return [*needs, Need("context", CONTEXT_MB * MB)] if gpus else needs


def shard(cfg: Config) -> tuple[Need, ...]:
    """A shard's share of what is searched: the arrays of an index folder (its documents stay on disk), or a corpus file,
    which each process reads and indexes whole."""
    sizes = [0.0]
    for path in corpora.paths(cfg):
        if path.is_dir():
            manifest = store.read_manifest(path)
            names = manifest.needed(corpora.kind(manifest.kinds, cfg.retriever, path))
            arrays = [int(manifest.files[name]["bytes"]) for name in names if name != store.DOCUMENTS]
            sizes.append(sum(arrays) / cfg.retriever.shards)
        elif path.is_file():
            sizes.append(path.stat().st_size * IN_MEMORY)
    return (*base("search", cfg.retriever.gpus), Need("index", int(sum(sizes))))


def encoder(cfg: Config) -> tuple[Need, ...]:
    """The encoder of each dense corpus, and the cross-encoder."""
    block = cfg.retriever
    parts = [part for path in corpora.paths(cfg) if (part := corpora.dense(path, block))]
    asked = [block.encoder or part.encoder.model for part in parts] + [block.reranker] * bool(block.reranker)
    numbers = sum(find(model).parameters for model in dict.fromkeys(asked))
    return (*base("policy", block.gpus), Need("weights", numbers * (4 if block.dtype == "float32" else 2)))


def judge(cfg: Config, gpu: int) -> engines.EngineNeeds:
    """What a judge verifies questions and judges answers with, where that is an engine of ours, of the solver's kind."""
    asked: list[tuple[str, str, int]] = []  # what for, model, episodes at a time
    if cfg.referee.verifier in ("frozen", "solver") and PROPOSER in cfg.roles:
        asked.append(("verifier's", cfg.solver.model, -(-cfg.proposer.batch // cfg.placement.judges)))
    if cfg.judge.kind == "engine":
        asked.append(("judge's", cfg.judge.model, 0))
    needs, note, short = base("policy", cfg.placement.judge_gpus), "", ""
    for name, model, episodes in asked:
        found = engines.engine(find(model), replace(cfg.solver, model=model), episodes, gpu)
        needs += [replace(need, what=f"{name} {need.what}") for need in found.needs]
        note, short = note or found.note, short or found.short
    return engines.EngineNeeds(tuple(needs), note, short)


def published(cfg: Config) -> int:
    """Bytes of weights that wait for players, as float32: of each role that learns, as many versions as may still be played
    and one; 0 where each version goes from GPU to GPU. Players on a shared base get adapters, by the host."""
    place, kind = cfg.placement, cfg.transfer.kind
    base = place.layout == "shared-base"
    gpus = kind == "auto" and place.engine_gpus and place.learner_gpus and not base and not takes_turns(cfg)
    if kind == "broadcast" or gpus:
        return 0
    total = 0
    for name, roles in learners(cfg).items():
        block = cfg.block(name)
        if block.policy != "frozen":
            model = find(block.model)
            versions = 2 + max(getattr(cfg.schedule.max_staleness, role) for role in roles)
            total += versions * (trainable(model, block.learner) if base else model.parameters) * FLOAT32
    return total
