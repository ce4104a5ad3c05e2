"""Retriever shards and encoders as Ray actors: one part of every corpus of the run, and the models
that read queries.

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
from ssp.base.values import Seconds
from ssp.config.schema import Config
from ssp.game import corpora
from ssp.search.batcher import Batcher
from ssp.search.hits import Hits, Knobs, Rows, Vectors

CALLS = 128
"""Calls that one actor works on at once, almost all of which wait for their batch. More wait in
Ray."""
PROBES = 2
"""Threads of an actor that answer probes alone, so that a busy one is never taken for a hung
one."""
RERANK = ""
"""The key of the cross-encoder's batches, which no corpus has: a corpus has a name."""

Texts = tuple[list[str], list[str]]
"""Ids and contents of documents, which travel as columns: records take longer to pack."""

_Part = TypeVar("_Part")
_actor: Any = ray.remote(max_concurrency=CALLS, concurrency_groups={"probe": PROBES})  # type: ignore[call-overload]
_probe: Any = ray.method(concurrency_group="probe")


@dataclass(frozen=True)
class Described:
    """One part of a corpus. `retriever`: what decides its answers; `total`: rows of the whole
    corpus; `span`: its own rows, [first, last)."""

    retriever: str
    total: int
    span: tuple[int, int]
    kind: str


def placed(cfg: Config) -> dict[str, Any]:
    """Ray's options of one shard or encoder. `actors.fleet` makes lost calls again, elsewhere if it
    can."""
    return {
        "num_cpus": cfg.placement.cpus,
        "num_gpus": cfg.retriever.gpus,
        "scheduling_strategy": "SPREAD",
        **restarts.options(cfg, ShardActor),
    }


class _Served(Alive):
    """Counts what is asked and under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        names = ("calls", "items", "batches", "computed", "under_way", "seconds")
        self._counts = dict.fromkeys(names, 0.0)

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
        block = cfg.retriever
        self._index = index
        self._shards = _by_corpus(cfg, lambda path: corpora.shard(path, block, index, block.shards))
        self._batcher: Batcher[Any, Any, None] = Batcher(self._work, block.max_batch, block.window)

    def __repr__(self) -> str:
        parts = []
        for name, shard in self._shards.items():
            first, end = shard.span
            parts.append(f"{name} {first}..{end - 1} of {shard.total}")
        return f"shard {self._index}: {', '.join(parts)}"

    @_probe
    def describe(self) -> dict[str, Described]:
        """What is here, by corpus."""
        parts = {}
        for name, shard in self._shards.items():
            parts[name] = Described(shard.retriever, shard.total, shard.span, shard.kind)
        return parts

    def search(
        self,
        corpus: str,
        texts: Sequence[str],
        vectors: Vectors | None,
        k: int,
        knobs: Knobs,
        kind: str,
        carry: bool,
    ) -> tuple[list[Hits], Texts]:
        """The rankings of this shard (`ssp.search.shard.Shard.search`); with `carry` also the
        documents of the first one, in the order of `Hits.named`."""
        with self._call(len(texts)):
            each = [None] * len(texts) if vectors is None else vectors
            items = list(zip(texts, each, strict=True))
            answers, _ = self._batcher.submit((corpus, k, knobs, kind), items).result()
            rankings = []
            for ranking in zip(*answers, strict=True):
                rows, scores = zip(*ranking, strict=True)
                rankings.append(Hits(np.stack(rows), np.stack(scores)))
            carried: Texts = ([], [])
            if carry:
                carried = self._texts(corpus, rankings[0].named())
            return rankings, carried

    def fetch(self, corpus: str, rows: Rows) -> Texts:
        """The documents of `rows`, in that order."""
        with self._call(len(rows)):
            return self._texts(corpus, rows)

    def _texts(self, corpus: str, rows: Rows) -> Texts:
        documents = self._shards[corpus].fetch(rows)
        return [d.id for d in documents], [d.contents for d in documents]

    def _work(self, key: Any, items: list[tuple[str, Any]]) -> tuple[list[Any], None]:
        """One (rows, scores) a ranking for each item; a query that several ask is searched once."""
        corpus, k, knobs, kind = key
        queries = [(text, None if vector is None else vector.tobytes()) for text, vector in items]
        different = dict(zip(queries, items, strict=True))
        texts = [text for text, _ in different.values()]
        vectors = None
        if items[0][1] is not None:
            vectors = np.stack([vector for _, vector in different.values()])
        started = time.perf_counter()
        rankings = self._shards[corpus].search(texts, vectors, k, knobs, kind)
        self._count(batches=1, computed=len(different), seconds=time.perf_counter() - started)
        answers = {}
        for i, query in enumerate(different):
            answers[query] = tuple((ranking.rows[i], ranking.scores[i]) for ranking in rankings)
        return [answers[query] for query in queries], None


@_actor
class EncoderActor(Calm, _Served):
    """The encoders of queries for the dense corpora of the run, and the cross-encoder, if there is
    one."""

    _encoders: Mapping[str, Any] = {}
    _reranker: Any = None

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        block = cfg.retriever
        self._encoders = _by_corpus(cfg, lambda path: corpora.encoder(path, block))
        self._reranker = corpora.reranker(block)
        self._batcher = Batcher[Any, Any, Seconds](self._work, block.max_batch, block.window)

    def __repr__(self) -> str:
        names = [name for name, encoder in self._encoders.items() if encoder is not None]
        if self._reranker is not None:
            names.append("reranker")
        return f"encoder: {', '.join(names)}"

    def encode_queries(self, corpus: str, texts: Sequence[str]) -> tuple[Vectors, Seconds]:
        """`[n, d] float32`, and seconds by stage of the batches that held them."""
        with self._call(len(texts)):
            rows, infos = self._batcher.submit(corpus, list(texts)).result()
            return np.stack(rows), {stage: sum(info[stage] for info in infos) for stage in infos[0]}

    def scores(
        self, queries: Sequence[str], documents: Sequence[Sequence[Document]]
    ) -> list[list[float]]:
        """The cross-encoder's scores, one a document."""
        items = list(zip(queries, map(tuple, documents), strict=True))
        with self._call(len(queries)):
            return self._batcher.submit(RERANK, items).result()[0]  # type: ignore[no-any-return]

    def _work(self, key: Hashable, items: list[Any]) -> tuple[Sequence[Any], Seconds]:
        """The result of each item, computed once for equal ones, and seconds by stage."""
        different = list(dict.fromkeys(items))
        seconds: Seconds = {}
        started = time.perf_counter()
        if key == RERANK:
            queries, documents = zip(*different, strict=True)
            results = self._reranker.scores(list(queries), list(map(list, documents)))
        else:
            results, seconds = self._encoders[str(key)].encode_queries(different)
        self._count(batches=1, computed=len(different), seconds=time.perf_counter() - started)
        answers = dict(zip(different, results, strict=True))
        return [answers[item] for item in items], seconds


def _by_corpus(cfg: Config, open_part: Callable[[Path], _Part]) -> dict[str, _Part]:
    """What `open_part` gives for the file of each corpus; a file that two name is opened once."""
    named = corpora.named(cfg)
    parts = {path: open_part(path) for path in dict.fromkeys(named.values())}
    return {name: parts[path] for name, path in named.items()}
