"""The corpora of a run, and the search in each: by shards, a server, an engine of the web, or a
record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

from ssp.base import models
from ssp.base.errors import Fault, hold, holding
from ssp.base.extras import extra
from ssp.base.files import digest
from ssp.config.schema import Config
from ssp.config.sources import RetrieverConfig
from ssp.data.readers import read_corpus
from ssp.game.world import files
from ssp.search.documents import MappedDocuments
from ssp.search.hits import Knobs, Search
from ssp.search.index import store
from ssp.search.index.store import DensePart
from ssp.search.known import RecordedSearch
from ssp.search.router import NO_CORPUS, Corpus, Fleet, LocalFleet, Options, Router
from ssp.search.shard import Encoder, HeldDocuments, Reranker, Shard, in_memory
from ssp.search.source import PROBE, Elsewhere, HttpSearch

TRAIN = "train"
"""The name of data.corpus."""
EFFORT = "effort"
"""A file in an index folder: how much a search that answers nearly looks at."""
KNOBS = {"ef_search": ("HNSW",), "nprobe": ("IVF", "IMI")}
"""Knob → the parts of a factory's name that say that an index has it."""


def named(cfg: Config, names: Iterable[str] | None = None) -> dict[str, Path]:
    """Corpus name → file or index folder. `train` is data.corpus; other corpora are named by their
    path or world. `none`, and what is searched elsewhere, has no file. Default: `train` and the
    corpora of data.eval. InputError for an unknown world."""
    specs = _specs(cfg, names)
    return {name: Path(files.resolve(spec, "corpus")) for name, spec in specs.items()}


def _specs(cfg: Config, names: Iterable[str] | None = None) -> dict[str, str]:
    """Corpus name → its path or world."""
    if names is None:
        names = [TRAIN, *(item.corpus for item in cfg.data.eval)]
    here = [name for name in names if name != NO_CORPUS and not elsewhere(cfg, name)]
    return {name: cfg.data.corpus if name == TRAIN else name for name in here}


def elsewhere(cfg: Config, corpus: str) -> bool:
    """Whether `retriever.url` or the online engine is searched for this corpus. They stand for
    data.corpus."""
    remote = cfg.retriever.url or cfg.retriever.online.engine
    return bool(remote) and corpus in (TRAIN, cfg.data.corpus)


def check(cfg: Config, names: Iterable[str] | None = None) -> None:
    """Read every corpus before anything starts, search once at `retriever.url`, and look for the
    key of the online engine. InputError for a bad corpus row, an index folder that does not fit the
    settings, no answer, no key."""
    corpora = list(dict.fromkeys(named(cfg, names).values()))
    for path in corpora:
        if path.is_dir():
            store.check_vectors(path)
        else:
            read_corpus(path)
    suit(cfg, corpora)
    check_remote(cfg)


def suit(cfg: Config, corpora: Iterable[Path]) -> None:
    """InputError for an index folder that does not fit the settings, and for an encoder or a
    reranker that is not there. Only manifests are read."""
    for path in corpora:
        fits(path, cfg.retriever, cfg.retriever.shards)
        if path.is_dir():
            encoder(path, cfg.retriever, load=False)
    reranker(cfg.retriever, load=False)


def fits(path: Path, cfg: RetrieverConfig, shards: int) -> None:
    """InputError for a knob that the corpus at `path` has not, and for parts that so many shards
    cannot share. Only a manifest is read."""
    part = dense(path)
    if part is None:
        return
    store.check_parts(path, store.read_manifest(path), shards)
    rule = f"an index with a file {EFFORT} has a graph or inverted lists"
    step = f"remove {path / EFFORT}"
    hold(not effort(path) or _knobs(part), rule, f"{path} has {part.factory}", step)


def effort(path: Path) -> int:
    """efSearch of HNSW or nprobe of IVF, from the file in an index folder that says it; 0 where
    there is none: as built. InputError where it holds no such number."""
    file = path / EFFORT
    if not file.is_file():
        return 0
    said = file.read_text(encoding="utf-8").strip()
    number = said.isascii() and said.isdecimal() and 0 < int(said) < 10**6
    rule = f"{file} holds a number from 1 on: efSearch of HNSW, nprobe of IVF"
    hold(number, rule, repr(said[:40]), "write it, or remove the file")
    return int(said)


def _knobs(part: DensePart) -> list[str]:
    """Names of the knobs that an index has."""
    return [knob for knob, marks in KNOBS.items() if any(mark in part.factory for mark in marks)]


def check_remote(cfg: Config) -> None:
    """InputError when a first search at `retriever.url` is not answered, or the key of the online
    engine is not set, whose searches cost."""
    if cfg.retriever.online.engine:
        _engine(cfg).close()
    elif cfg.retriever.url:
        rule = "retriever.url answers a POST (/retrieve without a path) before it is relied on"
        step = "start it (ssp serve --index DIR), or correct retriever.url"
        with holding(Fault, rule, str, step):
            with_remote(cfg, Router({})).search([PROBE], cfg.retriever.topk, TRAIN)


def shard(path: Path, cfg: RetrieverConfig, i: int, n: int) -> Shard:
    """Shard `i` of `n` of a corpus file (BM25, in memory) or an index folder. InputError for a bad
    one."""
    if not path.is_dir():
        return in_memory(read_corpus(path), cfg.k1, cfg.b, n)[i]
    return store.open_shard(path, i, n, gpu=cfg.gpus > 0)


def documents(path: Path, fleet: Fleet) -> HeldDocuments | MappedDocuments | None:
    """All documents of a corpus by their names: of an index folder; of a file those of the one
    shard in this process, or else read anew. None for a folder that was made without names."""
    if path.is_dir():
        return store.open_named(path)
    if isinstance(fleet, LocalFleet):
        (whole,) = fleet.shards
        return whole.documents
    return HeldDocuments(read_corpus(path))


def encoders(cfg: Config) -> int:
    """The number of encoder actors of a run: none where nothing is encoded or reranked."""
    needed = cfg.retriever.reranker or any(map(dense, paths(cfg)))
    return cfg.retriever.replicas if needed else 0


def paths(cfg: Config) -> list[Path]:
    """The corpora that a run reads, each once. Nothing is made: of a world the path is not
    there."""
    corpora = []
    for spec in dict.fromkeys(_specs(cfg).values()):
        if files.is_world(spec):
            corpora.append(Path(spec))
        elif spec != NO_CORPUS:
            corpora.append(models.resolve(spec, "data.corpus"))
    return corpora


def check_faiss(cfg: Config) -> None:
    """InputError when a corpus is searched by vectors here and faiss is not installed. Reads no
    index."""
    needed = any(map(dense, paths(cfg)))
    step = (
        "pip install 'ssp[cpu]' ('ssp[gpu]' with CUDA), or search by words alone: ssp index"
        " --kind bm25"
    )
    missing = needed and util.find_spec("faiss") is None
    hold(not missing, "search by vectors needs faiss", "not installed", step)


def dense(path: Path) -> DensePart | None:
    """The dense index that is searched for the corpus at `path`, if one is."""
    return store.read_manifest(path).dense if path.is_dir() else None


def encoder_of(path: Path, part: DensePart) -> str:
    """The model that encodes queries for the index at `path`: its folder `encoder`, which may be a
    link, or else the model that it names."""
    own = path / "encoder"
    return str(own) if own.is_dir() else part.encoder.model


def encoder(path: Path, cfg: RetrieverConfig, load: bool = True) -> Encoder | None:
    """The encoder of queries for the dense index at `path`; None for another corpus. Without `load`
    it is only looked for. InputError when its folder is not here."""
    part = dense(path)
    if part is None:
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
    """The type of number with which encoders compute, and the device."""
    return ("float16", "cuda") if cfg.gpus else ("float32", "cpu")


def options(cfg: RetrieverConfig, kind: str, path: Path) -> Options:
    """How a corpus is searched by default."""
    part = dense(path)
    knobs = dict.fromkeys(_knobs(part), effort(path)) if part else {}
    return Options(kind, Knobs(**knobs), cfg.rerank if cfg.reranker else 0)


def search(cfg: Config, names: Iterable[str] | None = None) -> Search:
    """Search in this process over `named(cfg, names)`, each as one shard, and by `with_remote`.
    InputError for a corpus, index or encoder that is not there or does not fit."""
    check_remote(cfg)
    block = cfg.retriever
    opened = {}
    corpora = {}
    shared = reranker(block)
    for name, path in named(cfg, names).items():
        if path not in opened:
            fits(path, block, 1)
            whole = shard(path, block, 0, 1)
            chosen = options(block, whole.kind, path)
            texts = encoder(path, block)
            opened[path] = Corpus(whole.retriever, LocalFleet([whole]), chosen, texts, shared)
        corpora[name] = opened[path]
    return with_remote(cfg, Router(corpora, block.cache))


def with_remote(cfg: Config, otherwise: Search) -> Search:
    """The search at `retriever.url` or of the online engine for the corpus that it stands for, and
    `otherwise` for the others."""
    block = cfg.retriever
    if block.online.engine:
        there = _engine(cfg)
    elif block.url:
        there = HttpSearch(block.url, block.timeout)
    else:
        return otherwise
    return Elsewhere(there, (TRAIN, cfg.data.corpus), otherwise)


def _engine(cfg: Config) -> Any:
    """The search of the online engine, which can be closed."""
    return online(cfg.retriever, "search").OnlineSearch(cfg.retriever, cfg.seed)


def online(cfg: RetrieverConfig, module: str) -> ModuleType:
    """A module of the extra that searches the web. InputError where it is not installed."""
    return extra("online", f"retriever.online.engine={cfg.online.engine}", module)


def content(path: Path) -> str:
    """A digest of a corpus file or an index folder. InputError without one."""
    hold(path.exists(), "a corpus is a readable file or an index folder", path, "check the path")
    return store.read_manifest(path).sha256 if path.is_dir() else digest(path)


def recorded(
    cfg: Config, names: Sequence[str], file: Path, ttl: float, replay: bool
) -> RecordedSearch:
    """The search of `search(cfg, names)` behind a record; in `replay` the record alone. InputError
    for a missing corpus."""
    block = cfg.retriever
    there = block.url
    if block.online.engine:
        there = online(block, "engines").told(block, cfg.seed)
    retrievers = {NO_CORPUS: NO_CORPUS}
    for name in names:
        if elsewhere(cfg, name):
            retrievers[name] = there
    for name, path in named(cfg, names).items():
        retrievers[name] = _identity(block, path)
    return RecordedSearch(file, None if replay else search(cfg, names), retrievers, ttl)


def _identity(cfg: RetrieverConfig, path: Path) -> str:
    """All that decides the answers in the corpus at `path`, which is not loaded."""
    if not path.is_dir():
        return f"bm25 k1={cfg.k1:g} b={cfg.b:g} {content(path)}"
    manifest = store.read_manifest(path)
    model = encoder_of(path, manifest.dense) if manifest.dense else ""
    number, _ = _computes(cfg)
    chosen = options(cfg, manifest.kind, path)
    return f"{content(path)[:16]} {chosen} {model} {number} {cfg.reranker}"
