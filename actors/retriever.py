"""Retriever shards and encoders as Ray actors: one part of every corpus of the run, and the models
over queries.

Requests that many players and lanes send at once are merged."""

import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import ray

from actors import restarts
from actors.process import Alive, Calm
from ssp.base.episode import Document
from ssp.config.schema import Config
from ssp.game import corpora
from ssp.search.batcher import Batcher
from ssp.search.hits import Hits, Knobs, Rows, Vectors
from ssp.search.known import Known

CALLS = 128
"""Calls that one actor works on at once; almost all of them wait for their batch. More wait
outside."""
PROBES = 2
"""Threads of an actor that answer probes alone, so that a busy one is never taken for a hung
one."""
RERANK = ""
"""The key of the cross-encoder's batches; a corpus has a name."""

_Part = TypeVar("_Part")
_actor: Any = ray.remote(max_concurrency=CALLS, concurrency_groups={"probe": PROBES})  # type: ignore[call-overload]
_probe: Any = ray.method(concurrency_group="probe")


@dataclass(frozen=True)
class Described:
    """One part of a corpus: what decides its answers, rows of the whole corpus, its own [first,
    last), and its kind."""

    retriever: str
    total: int
    span: tuple[int, int]
    kind: str


def placed(cfg: Config) -> dict[str, Any]:
    """What Ray is asked for one shard or encoder. Lost calls are made again by `actors.fleet`,
    elsewhere if it can."""
    asked = {
        "num_cpus": cfg.placement.cpus,
        "num_gpus": cfg.retriever.gpus,
        "scheduling_strategy": "SPREAD",
    }
    return asked | restarts.options(cfg, ShardActor)


class _Served(Alive):
    """Counts what is asked and under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(
            ("calls", "items", "batches", "computed", "under_way", "seconds"), 0.0
        )

    @_probe
    def ping(self) -> int:
        """Process id."""
        return Alive.ping(self)

    @_probe
    def state(self) -> dict[str, float]:
        """Calls, their items, batches made of them, different items computed, seconds of that,
        calls under way."""
        return dict(self._counts)

    def _count(self, **more: float) -> None:
        with self._lock:
            for name, value in more.items():
                self._counts[name] += value

    @contextmanager
    def _call(self, items: int) -> Iterator[None]:
        """Around a call of so many items."""
        self._count(under_way=1, calls=1, items=items)
        try:
            yield
        finally:
            self._count(under_way=-1)


@_actor
class ShardActor(_Served):
    """Shard `index` of every corpus of the run."""

    # for the name of an actor that cannot start: else nobody learns why
    _shards: Mapping[str, Any] = {}

    def __init__(self, cfg: Config, index: int) -> None:
        super().__init__()
        block, self._index = cfg.retriever, index
        self._shards = _by_corpus(cfg, lambda path: corpora.shard(path, block, index, block.shards))
        self._batcher: Batcher[Any, Any, None] = Batcher(self._work, block.max_batch, block.window)

    def __repr__(self) -> str:
        parts = (
            f"{name} {s.span[0]}..{s.span[1] - 1} of {s.total}" for name, s in self._shards.items()
        )
        return f"shard {self._index}: {', '.join(parts)}"

    @_probe
    def describe(self) -> dict[str, Described]:
        """What is here, by corpus."""
        return {
            name: Described(s.retriever, s.total, s.span, s.kind)
            for name, s in self._shards.items()
        }

    def search(
        self,
        corpus: str,
        texts: Sequence[str],
        vectors: Vectors | None,
        k: int,
        knobs: Knobs,
        kind: str,
    ) -> list[Hits]:
        """The rankings of this shard (`ssp.search.shard.Shard.search`)."""
        with self._call(len(texts)):
            items = list(
                zip(texts, [None] * len(texts) if vectors is None else vectors, strict=True)
            )
            found, _ = self._batcher.submit((corpus, k, knobs, kind), items).result()
            rankings = [zip(*ranking, strict=True) for ranking in zip(*found, strict=True)]
            return [Hits(*map(np.stack, ranking)) for ranking in rankings]

    def fetch(self, corpus: str, rows: Rows) -> tuple[list[str], list[str]]:
        """Ids and contents of the documents of `rows`, in that order."""
        with self._call(len(rows)):
            documents = self._shards[corpus].fetch(rows)
            return [d.id for d in documents], [d.contents for d in documents]

    def _work(self, key: Any, items: list[tuple[str, Any]]) -> tuple[list[Any], None]:
        """One (rows, scores) a ranking for each item; a query that several ask is searched once."""
        corpus, k, knobs, kind = key
        keys = [(text, None if vector is None else vector.tobytes()) for text, vector in items]

        def work(different: list[tuple[str, Any]]) -> list[Any]:
            given = [
                None if vector is None else np.frombuffer(vector, np.float32)
                for _, vector in different
            ]
            vectors = None if given[0] is None else np.stack(given)  # type: ignore[arg-type]
            started = time.perf_counter()
            rankings = self._shards[corpus].search(
                [text for text, _ in different], vectors, k, knobs, kind
            )
            self._count(batches=1, computed=len(different), seconds=time.perf_counter() - started)
            return [
                tuple((r.rows[i], r.scores[i]) for r in rankings) for i in range(len(different))
            ]

        found, _ = Known[Any, Any]().ask(keys, work)
        return [found[key] for key in keys], None


@_actor
class EncoderActor(Calm, _Served):
    """What encodes queries for the dense corpora of the run, and the cross-encoder, if there is
    one."""

    _encoders: Mapping[str, Any] = {}
    _reranker: Any = None

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        block = cfg.retriever
        self._encoders = _by_corpus(cfg, lambda path: corpora.encoder(path, block))
        self._reranker = corpora.reranker(block)
        self._batcher: Batcher[Any, Any, dict[str, float]] = Batcher(
            self._work, block.max_batch, block.window
        )

    def __repr__(self) -> str:
        names = [name for name, encoder in self._encoders.items() if encoder is not None]
        return f"encoder: {', '.join(names + ['reranker'] * (self._reranker is not None))}"

    def encode_queries(self, corpus: str, texts: Sequence[str]) -> tuple[Vectors, dict[str, float]]:
        """`[n, d] float32`, and seconds by stage of the batches that held them."""
        with self._call(len(texts)):
            rows, infos = self._batcher.submit(corpus, list(texts)).result()
            return np.stack(rows), {stage: sum(info[stage] for info in infos) for stage in infos[0]}

    def scores(
        self, queries: Sequence[str], documents: Sequence[Sequence[Document]]
    ) -> list[list[float]]:
        """The cross-encoder's scores, one a document."""
        items = [(query, tuple(found)) for query, found in zip(queries, documents, strict=True)]
        with self._call(len(queries)):
            return self._batcher.submit(RERANK, items).result()[0]  # type: ignore[no-any-return]

    def _work(self, key: Hashable, items: list[Any]) -> tuple[Sequence[Any], dict[str, float]]:
        seconds: dict[str, float] = {}

        def work(different: list[Any]) -> Sequence[Any]:
            started = time.perf_counter()
            if key == RERANK:
                queries, documents = zip(*different, strict=True)
                found, spent = self._reranker.scores(list(queries), list(map(list, documents))), {}
            else:
                found, spent = self._encoders[str(key)].encode_queries(different)
            seconds.update(spent)
            self._count(batches=1, computed=len(different), seconds=time.perf_counter() - started)
            return found  # type: ignore[no-any-return]

        found, _ = Known[Any, Any]().ask(items, work)
        return [found[item] for item in items], seconds


def _by_corpus(cfg: Config, opened: Callable[[Path], _Part]) -> dict[str, _Part]:
    """By corpus; a file that two corpora name is opened once."""
    named = corpora.named(cfg)
    parts = {path: opened(path) for path in dict.fromkeys(named.values())}
    return {name: parts[path] for name, path in named.items()}
