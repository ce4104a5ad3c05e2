"""What `ssp train --dry-run` prints: the resolved config, the actor graph with resources, a memory estimate.

Owns the picture of a run before it exists. Promises to start nothing and to import neither Ray nor torch.
Refuses to measure: sizes a process are constants measured on one 2-core Linux machine, and the result is an estimate.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ssp import corpora, models
from ssp.build import COLDSTART, TINY
from ssp.config import to_yaml
from ssp.config.role import RoleConfig
from ssp.config.schema import Config
from ssp.episode import PROPOSER, SOLVER
from ssp.index import store
from ssp.selfplay.cast import queue_names
from ssp.world import files

BASE_MB = {"ray": 630, "driver": 350, "policy": 350, "search": 110, "plain": 60}
"""Resident megabytes of one process before its data: Ray's own (with dashboard), an actor with torch and transformers,
an actor with numpy and bm25s, an actor with neither."""

IN_MEMORY = 7.5
"""Bytes at the peak for each byte of a corpus file that is read and indexed in memory (60,000 documents of 80 words)."""

OWN = (COLDSTART, TINY)
EMBEDDED = 160_000
"""Parameters of the embedded policy; the tiny one has about as many."""
EMBEDDED_KV = 256
"""Numbers that a token puts into its KV cache: 2 layers x (key, value) x 2 heads x 32 dimensions."""

_MB = 2**20
_FLOAT32 = 4
_SAID = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)B\b")
"""A model's size in its name, as in Qwen2.5-7B-Instruct."""


@dataclass(frozen=True)
class Part:
    """One kind of process: how many, CPUs each asks Ray for, megabytes each (estimate), what it does."""

    name: str
    count: int
    cpus: float
    megabytes: float
    task: str


def describe(cfg: Config) -> str:
    """The whole text. InputError where a corpus that is here does not fit the settings; `cfg` itself was checked."""
    for path in corpora.paths(cfg):
        if path.exists() or files.world_seed(str(path), cfg) is not None:
            corpora.fits(path, cfg.retriever, cfg.retriever.shards)
    parts = actors(cfg)
    sections = (
        ("Configuration", to_yaml(cfg).rstrip()),
        ("Actor graph", graph(cfg)),
        ("Actors", _actor_table(parts)),
        ("Memory, estimated", _memory_table(cfg, parts)),
        ("Next", "Nothing was started. Leave out --dry-run to train."),
    )
    return "\n\n".join(f"# {title}\n{body}" for title, body in sections)


def actors(cfg: Config) -> list[Part]:
    """Every actor of the run, in the data's order."""
    place, queues, asks = cfg.placement, queue_names(cfg), PROPOSER in cfg.roles
    checks = "checks questions (rules, evidence), grades answers" if asks else "grades answers"
    parts = [
        Part("judge", place.judges, place.cpus, _judge_mb(cfg), checks),
        Part("solver", place.solvers, place.cpus, _player_mb(cfg, SOLVER), "searches and answers"),
        Part("retriever", cfg.retriever.shards * cfg.retriever.replicas, place.cpus, _shard_mb(cfg), _shards(cfg)),
    ]
    if count := corpora.encoders(cfg):
        parts.append(Part("encoder", count, place.cpus, _encoder_mb(cfg), "encodes queries, reranks documents"))
    if asks:
        task = "searches and asks a question"
        parts.insert(0, Part("proposer", place.proposers, place.cpus, _player_mb(cfg, PROPOSER), task))
    for name in cfg.roles:
        task = "holds the frozen policy" if cfg.block(name).policy == "frozen" else f"updates the {name}'s policy"
        parts.append(Part(f"learner-{name}", 1, place.cpus, _learner_mb(cfg, name), task))
    held = f"hands over references: {queues[0]}, one batch queue a role"
    return [
        *parts,
        Part("queue", len(queues), place.cpus, BASE_MB["plain"], held),
        Part("ledger", 1, place.cpus, BASE_MB["plain"], "every episode's state and cause (SQLite)"),
    ]


def graph(cfg: Config) -> str:
    """The flow as text, read from top to bottom."""
    bound, place = cfg.schedule.max_staleness, cfg.placement
    shards = f"{cfg.retriever.shards}" + (f" x{cfg.retriever.replicas}" if cfg.retriever.replicas > 1 else "")
    lines = [
        "targets",
        "   |",
        f"proposer x{place.proposers}  <-- searches --> retriever x{shards}",
        "   |  questions",
        f"judge x{place.judges}  (rules, then evidence; verifier: {cfg.referee.verifier})",
    ]
    if PROPOSER not in cfg.roles:
        lines = [f"{cfg.game.questions}: {cfg.data.questions}"]
    lines += [
        "   |",
        "[question queue]",
        f"   |  {cfg.game.attempts} attempts a question",
        f"solver x{place.solvers}  <-- searches --> retriever x{shards}",
        "   |  answers",
        f"judge x{place.judges}  ({cfg.judge.kind})",
        "   |",
    ]
    for name in cfg.roles:
        players = f"{name} x{place.proposers if name == PROPOSER else place.solvers}"
        frozen = cfg.block(name).policy == "frozen"
        end = "kept: the policy is frozen" if frozen else f"{name} learner -- weights --> {players}"
        lines.append(f"   +--> [{name} queue] --> {end}")
    bounds = ", ".join(f"{name} {getattr(bound, name)}" for name in cfg.roles)
    return "\n".join(
        [
            *lines,
            "",
            "Queues and weights carry object references. ledger x1 records every episode.",
            "The coordinator runs in the process of ssp train.",
            f"Staleness bound: {bounds} (0 = synchronous).",
        ]
    )


def _actor_table(parts: Sequence[Part]) -> str:
    rows = [(p.name, str(p.count), f"{p.cpus:g}", f"{p.megabytes:.0f}", p.task) for p in parts]
    total = (
        "all",
        str(sum(p.count for p in parts)),
        f"{sum(p.count * p.cpus for p in parts):g}",
        f"{sum(p.count * p.megabytes for p in parts):.0f}",
        "CPUs are what Ray reserves; each process computes on one thread",
    )
    return _table(("actor", "count", "CPUs each", "MB each", ""), [*rows, total])


def _memory_table(cfg: Config, parts: Sequence[Part]) -> str:
    rows = [(f"{p.name} x{p.count}", p.count * p.megabytes) for p in parts]
    rows += [
        ("coordinator (this process)", float(BASE_MB["driver"])),
        ("Ray itself (absent from this sum when a cluster runs already)", float(BASE_MB["ray"])),
        ("object store, at most", float(cfg.ray.object_store_mb)),
    ]
    rows.append(("total", sum(size for _, size in rows)))
    notes = [note for model in dict.fromkeys(_models(cfg)) if (note := _missing(model))]
    return "\n".join([_table(("what", "MB"), [(name, f"{size:.0f}") for name, size in rows]), *notes])


def _player_mb(cfg: Config, name: str) -> float:
    """A process, one copy of the weights, and a KV cache that holds its share of the episodes at full length."""
    role = cfg.block(name)
    if name == PROPOSER:
        episodes, players = role.batch, cfg.placement.proposers
    else:
        episodes, players = role.batch * cfg.game.attempts, cfg.placement.solvers
    return BASE_MB["policy"] + _engine_mb(role, -(-episodes // players))


def _shards(cfg: Config) -> str:
    copies = f", {cfg.retriever.replicas} copies each" if cfg.retriever.replicas > 1 else ""
    return f"searches one shard of each corpus{copies}"


def _shard_mb(cfg: Config) -> float:
    """A process, and its share of what is searched: the arrays of an index folder (its documents stay on disk), or a
    corpus file, which each process reads and indexes whole."""
    sizes = [0.0]
    for path in corpora.paths(cfg):
        if path.is_dir():
            manifest = store.read_manifest(path)
            names = manifest.needed(corpora.kind(manifest.kinds, cfg.retriever, path))
            arrays = [int(manifest.files[name]["bytes"]) for name in names if name != store.DOCUMENTS]
            sizes.append(sum(arrays) / cfg.retriever.shards)
        elif path.is_file():
            sizes.append(path.stat().st_size * IN_MEMORY)
    return BASE_MB["search"] + sum(sizes) / _MB


def _encoder_mb(cfg: Config) -> float:
    """A process with the encoder of each dense corpus, and the cross-encoder."""
    block = cfg.retriever
    parts = [part for path in corpora.paths(cfg) if (part := corpora.dense(path, block))]
    asked = [block.encoder or part.encoder.model for part in parts] + [block.reranker] * bool(block.reranker)
    numbers = sum(_parameters(model) for model in dict.fromkeys(asked))
    return BASE_MB["policy"] + numbers * (_FLOAT32 if block.dtype == "float32" else 2) / _MB


def _judge_mb(cfg: Config) -> float:
    """A process, with what it verifies questions and judges answers with, where that is an engine of ours."""
    megabytes = float(BASE_MB["policy"])
    if cfg.referee.verifier in ("frozen", "solver") and PROPOSER in cfg.roles:
        megabytes += _engine_mb(cfg.solver, -(-cfg.proposer.batch // cfg.placement.judges))
    if cfg.judge.kind == "engine":
        megabytes += _engine_mb(replace(cfg.solver, model=cfg.judge.model), 0)
    return megabytes


def _engine_mb(role: RoleConfig, episodes: int) -> float:
    """Weights in the engine's dtype, and the KV cache of so many episodes."""
    numbers = _parameters(role.model) + episodes * role.limits.total_tokens * _kv_numbers(role.model)
    return numbers * (2 if role.engine.dtype == "bfloat16" else _FLOAT32) / _MB


def _learner_mb(cfg: Config, name: str) -> float:
    """Weights, gradient and two moments, twice with a critic; the reference model when there is a KL term; one micro-batch
    of activations."""
    role = cfg.block(name)
    copies = 4 * (2 if role.algorithm == "gae" else 1) + (1 if role.kl.coef > 0 else 0)
    activations = role.learner.token_budget * _kv_numbers(role.model) * 8
    return BASE_MB["policy"] + (copies * _parameters(role.model) + activations) * _FLOAT32 / _MB


def _models(cfg: Config) -> list[str]:
    return [cfg.block(name).model for name in cfg.roles] + [cfg.judge.model] * (cfg.judge.kind == "engine")


def _parameters(model: str) -> float:
    """How many: of a model that is not here what its name says, else 0 (`_missing` tells)."""
    if model in OWN:
        return EMBEDDED
    folder, said = models.find(model, "model"), _SAID.search(model)
    if folder is None:
        return float(said[1]) * 1e9 if said else 0.0
    return float(sum(_count(file) for file in folder.glob("*.safetensors")))


def _count(file: Path) -> int:
    """Numbers in a safetensors file, by its header."""
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def _kv_numbers(model: str) -> int:
    """Numbers a token in the KV cache, from the model's config.json; 0 when it is not here."""
    if model in OWN:
        return EMBEDDED_KV
    folder = models.find(model, "model")
    path = None if folder is None else folder / "config.json"
    if path is None or not path.is_file():
        return 0
    shape = json.loads(path.read_text(encoding="utf-8"))
    heads = shape.get("num_key_value_heads", shape["num_attention_heads"])
    width = shape.get("head_dim") or shape["hidden_size"] // shape["num_attention_heads"]
    return int(shape["num_hidden_layers"] * 2 * heads * width)


def _missing(model: str) -> str:
    """What the estimate does not know, "" for a model that is here."""
    if model in OWN or models.find(model, "model") is not None:
        return ""
    if said := _SAID.search(model):
        return (
            f"{model} is not here: {said[1]} billion parameters by its name; its KV cache and activations come on top."
        )
    return f"{model} is not here, and its name does not say how large it is: its memory comes on top."


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns, numbers to the right."""
    lines = [tuple(header), *map(tuple, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]

    def cell(text: str, i: int) -> str:
        number = text.replace(".", "").isdigit()
        return text.rjust(widths[i]) if number or i in (1, 2, 3) and len(header) > 2 else text.ljust(widths[i])

    return "\n".join("  ".join(cell(text, i) for i, text in enumerate(line)).rstrip() for line in lines)
