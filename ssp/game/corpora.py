"""The corpora of a run, and what answers a search in each: shards, a server, an engine of the web,
a record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

from ssp.base import models
from ssp.base.errors import Fault, InputError, hold, holding
from ssp.base.extras import extra
from ssp.base.files import digest
from ssp.config.schema import Config
from ssp.config.sources import RetrieverConfig
from ssp.data.readers import read_corpus
from ssp.game.world import files
from ssp.search.hits import Knobs, Search
from ssp.search.index import store
from ssp.search.index.store import DensePart
from ssp.search.known import RecordedSearch
from ssp.search.router import NO_CORPUS, Corpus, LocalFleet, Options, Router
from ssp.search.shard import Encoder, Reranker, Shard, in_memory
from ssp.search.source import PROBE, Elsewhere, HttpSearch

TRAIN = "train"
"""The name of data.corpus."""
KNOBS = {"ef_search": ("HNSW",), "nprobe": ("IVF", "IMI")}
"""Knob → what a factory names when its index has it."""


def named(cfg: Config, names: Iterable[str] | None = None) -> dict[str, Path]:
    """Corpus name → file or index folder. `train` is data.corpus; another corpus is named by its
    path or world. `none`, and what is searched elsewhere, has no file. Default: `train` and the
    corpora of data.eval. InputError: unknown world."""
    return {name: Path(files.resolve(spec, "corpus")) for name, spec in _specs(cfg, names).items()}


def _specs(cfg: Config, names: Iterable[str] | None = None) -> dict[str, str]:
    wanted = [TRAIN, *(item.corpus for item in cfg.data.eval)] if names is None else names
    here = [name for name in wanted if name != NO_CORPUS and not elsewhere(cfg, name)]
    return {name: cfg.data.corpus if name == TRAIN else name for name in here}


def elsewhere(cfg: Config, corpus: str) -> bool:
    """Whether `retriever.url` or the online engine is searched for this corpus: they stand for
    data.corpus."""
    return bool(cfg.retriever.url or cfg.retriever.online.engine) and corpus in (
        TRAIN,
        cfg.data.corpus,
    )


def check(cfg: Config, names: Iterable[str] | None = None) -> None:
    """Read what can be read of every corpus before anything starts, search once at `retriever.url`,
    and look for the key of the online engine. InputError for a bad corpus row, an index folder that
    does not fit the settings, no answer, no key."""
    found = list(dict.fromkeys(named(cfg, names).values()))
    for path in found:
        if path.is_dir():
            store.check_vectors(path)
        else:
            read_corpus(path)
    suit(cfg, found)
    check_remote(cfg)


def suit(cfg: Config, found: Iterable[Path]) -> None:
    """InputError for an index folder that does not fit the settings, and for an encoder or a
    reranker that is not there; no more than manifests is read."""
    for path in found:
        fits(path, cfg.retriever, cfg.retriever.shards)
        if path.is_dir():
            encoder(path, cfg.retriever, load=False)
    reranker(cfg.retriever, load=False)


def fits(path: Path, cfg: RetrieverConfig, shards: int) -> None:
    """InputError for a knob that the corpus at `path` has not, and for parts that so many shards
    cannot share; only a manifest is read."""
    if (part := dense(path)) is None:
        return
    store.check_parts(path, store.read_manifest(path), shards)
    rule = "an index whose effort is set, retriever.effort, has a graph or inverted lists"
    hold(not cfg.effort or _knobs(part), rule, f"{path} has {part.factory}", "leave effort at 0")


def _knobs(part: DensePart) -> list[str]:
    """Names of the knobs that an index has."""
    return [knob for knob, marks in KNOBS.items() if any(mark in part.factory for mark in marks)]


def check_remote(cfg: Config) -> None:
    """InputError when a first search at `retriever.url`, if there is one, is not answered, or the
    online engine's key is not set: searches there cost."""
    if cfg.retriever.online.engine:
        _engine(cfg).close()
        return
    if not cfg.retriever.url:
        return
    rule = "retriever.url answers Search-R1's POST /retrieve before it is relied on"
    with holding(Fault, rule, str, "start it (ssp serve --index DIR), or correct retriever.url"):
        with_remote(cfg, Router({})).search([PROBE], cfg.retriever.topk, TRAIN)


def shard(path: Path, cfg: RetrieverConfig, i: int, n: int) -> Shard:
    """Shard `i` of `n` of a corpus file (BM25, in memory) or an index folder. InputError for a bad
    one."""
    if not path.is_dir():
        return in_memory(read_corpus(path), cfg.k1, cfg.b, n)[i]
    return store.open_shard(path, i, n, gpu=cfg.gpus > 0)


def encoders(cfg: Config) -> int:
    """How many encoder actors a run has: none where nothing is encoded or reranked."""
    return cfg.retriever.replicas if cfg.retriever.reranker or any(map(dense, paths(cfg))) else 0


def paths(cfg: Config) -> list[Path]:
    """The corpora of a run, each once, where it reads them; nothing is made: a world is a path that
    is not there."""
    specs = [spec for spec in dict.fromkeys(_specs(cfg).values()) if spec != NO_CORPUS]
    return [
        Path(spec) if files.is_world(spec) else models.resolve(spec, "data.corpus")
        for spec in specs
    ]


def check_faiss(cfg: Config) -> None:
    """InputError when a corpus is searched by vectors here and faiss is not installed. Reads no
    index."""
    if any(map(dense, paths(cfg))) and util.find_spec("faiss") is None:
        step = (
            "pip install 'ssp[cpu]' ('ssp[gpu]' with CUDA), or search by words alone: ssp index"
            " --kind bm25"
        )
        raise InputError("search by vectors needs faiss", "not installed", step)


def dense(path: Path) -> DensePart | None:
    """The dense index that is searched for the corpus at `path`, if one is."""
    return store.read_manifest(path).dense if path.is_dir() else None


def encoder_of(path: Path, part: DensePart) -> str:
    """The model that encodes queries for the index at `path`: the folder `encoder` in it, which may
    be a link, where there is one, else the model that the index names."""
    own = path / "encoder"
    return str(own) if own.is_dir() else part.encoder.model


def encoder(path: Path, cfg: RetrieverConfig, load: bool = True) -> Encoder | None:
    """What encodes queries for the dense index at `path`; None where none is asked. Without `load`
    it is only looked for. InputError when its folder is not here."""
    if (part := dense(path)) is None:
        return None
    folder = models.folder(encoder_of(path, part), "an index's encoder")
    return _encoders().TextEncoder(folder, part.encoder, *_computes(cfg)) if load else None


def reranker(cfg: RetrieverConfig, load: bool = True) -> Reranker | None:
    """The configured cross-encoder, if there is one. InputError when its folder is not here."""
    if not cfg.reranker:
        return None
    folder = models.folder(cfg.reranker, "retriever.reranker")
    return _encoders().CrossEncoder(folder, *_computes(cfg)) if load else None


def _encoders() -> Any:
    from ssp.search.encoders import encoder  # brings torch

    return encoder


def _computes(cfg: RetrieverConfig) -> tuple[str, str]:
    """In which numbers, and on what, encoders compute."""
    return ("float16", "cuda") if cfg.gpus else ("float32", "cpu")


def options(cfg: RetrieverConfig, kind: str, path: Path) -> Options:
    """How a corpus is searched by default."""
    rerank, part = cfg.rerank if cfg.reranker else 0, dense(path)
    return Options(
        kind, Knobs(**dict.fromkeys(_knobs(part), cfg.effort)) if part else Knobs(), rerank
    )


def search(cfg: Config, names: Iterable[str] | None = None) -> Search:
    """Search in this process over `named(cfg, names)`, each as one shard; with `retriever.url` the
    server there for what it stands for, after a first search (InputError when that fails)."""
    check_remote(cfg)
    opened: dict[Path, Corpus] = {}
    corpora: dict[str, Corpus] = {}
    shared = reranker(cfg.retriever)
    for name, path in named(cfg, names).items():
        if path not in opened:
            fits(path, cfg.retriever, 1)
            whole = shard(path, cfg.retriever, 0, 1)
            chosen, texts = options(cfg.retriever, whole.kind, path), encoder(path, cfg.retriever)
            opened[path] = Corpus(whole.retriever, LocalFleet([whole]), chosen, texts, shared)
        corpora[name] = opened[path]
    return with_remote(cfg, Router(corpora, cfg.retriever.cache))


def with_remote(cfg: Config, otherwise: Search) -> Search:
    """`otherwise`, with what is searched elsewhere for the corpus that it stands for, if the
    configuration names it."""
    block = cfg.retriever
    if not (block.url or block.online.engine):
        return otherwise
    there = _engine(cfg) if block.online.engine else HttpSearch(block.url, block.timeout)
    return Elsewhere(there, (TRAIN, cfg.data.corpus), otherwise)


def _engine(cfg: Config) -> Any:
    """The search of the online engine, which can be closed."""
    return online(cfg.retriever, "search").OnlineSearch(cfg.retriever, cfg.seed)


def online(cfg: RetrieverConfig, module: str) -> ModuleType:
    """A module of the extra that searches the web. InputError where it is not installed."""
    return extra("online", f"retriever.online.engine={cfg.online.engine}", module)


def content(path: Path) -> str:
    """What stands for all that is in a corpus file or an index folder: two that differ have two.
    InputError without one."""
    hold(path.exists(), "a corpus is a readable file or an index folder", path, "check the path")
    return store.read_manifest(path).sha256 if path.is_dir() else digest(path)


def recorded(
    cfg: Config, names: Sequence[str], file: Path, ttl: float, replay: bool
) -> RecordedSearch:
    """The search of `search(cfg, names)` behind a record; in `replay` the record alone. InputError
    for a missing corpus."""
    block, there = cfg.retriever, cfg.retriever.url
    if block.online.engine:
        there = online(block, "engines").told(block, cfg.seed)
    retrievers = {NO_CORPUS: NO_CORPUS, **{name: there for name in names if elsewhere(cfg, name)}}
    for name, path in named(cfg, names).items():  # all that decides the answers, without loading it
        if path.is_dir():
            found = store.read_manifest(path)
            asks = encoder_of(path, found.dense) if found.dense else ""
            how = (
                f"{options(block, found.kind, path)} {asks} {_computes(block)[0]} {block.reranker}"
            )
            retrievers[name] = f"{content(path)[:16]} {how}"
        else:
            retrievers[name] = f"bm25 k1={block.k1:g} b={block.b:g} {content(path)}"
    return RecordedSearch(file, None if replay else search(cfg, names), retrievers, ttl)
