"""From queries to documents over the shards of named corpora: what is known already, encode, ask
every shard, merge, fuse, fetch, rerank."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol

import numpy as np

from ssp.base.episode import Document
from ssp.base.errors import Fault, InputError, InvariantError
from ssp.search.hits import NO_ROW, Answers, Hits, Knobs, Rows, Vectors, fuse, merge
from ssp.search.known import Known
from ssp.search.shard import BM25, HYBRID, Encoder, Reranker, Shard

NO_CORPUS = "none"
"""The corpus in which every search finds nothing: evaluation with search switched off."""
DOWN, PARTIAL = "retriever_down", "retriever_partial"
DEPTH = 100
"""How far down each ranking fusion looks, at least."""
CACHE = 8192
CACHED_K = 64
CACHED_QUERY = 256
"""Only answers of at most CACHED_K documents to queries of at most CACHED_QUERY characters are
kept: bounded memory."""


class Fleet(Protocol):
    """Reaches the shards of one corpus. `spans`: first row and last row + 1 of each."""

    @property
    def spans(self) -> Sequence[tuple[int, int]]: ...

    def search(
        self, texts: Sequence[str], vectors: Vectors | None, k: int, knobs: Knobs, kind: str
    ) -> dict[int, list[Hits]]:
        """The rankings of every shard that answered in time, by shard."""

    def fetch(self, rows: Mapping[int, Rows]) -> dict[int, list[Document]]:
        """The documents of `rows` (by shard), of every shard that answered in time."""


class LocalFleet:
    """The shards in this process: never one is missing."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards, self.spans = list(shards), [shard.span for shard in shards]

    def search(
        self, texts: Sequence[str], vectors: Vectors | None, k: int, knobs: Knobs, kind: str
    ) -> dict[int, list[Hits]]:
        """The rankings of every shard."""
        return {
            i: shard.search(texts, vectors, k, knobs, kind) for i, shard in enumerate(self.shards)
        }

    def fetch(self, rows: Mapping[int, Rows]) -> dict[int, list[Document]]:
        """The documents of `rows`, by shard."""
        return {i: self.shards[i].fetch(some) for i, some in rows.items()}


@dataclass(frozen=True)
class Options:
    """How one request is answered. `kind`: bm25, dense, hybrid. `rerank`: how many candidates the
    cross-encoder reads (0: it is not asked)."""

    kind: str = BM25
    knobs: Knobs = Knobs()
    rerank: int = 0


@dataclass
class Corpus:
    """One corpus and how it is searched by default. `retriever`: everything that decides an answer
    but query and k."""

    retriever: str
    fleet: Fleet
    options: Options = Options()
    encoder: Encoder | None = None
    reranker: Reranker | None = None
    total: int = field(init=False)

    def __post_init__(self) -> None:
        spans = sorted(self.fleet.spans)
        self.total = max((last for _, last in spans), default=0)
        if not self.total or [0, *(last for _, last in spans)] != [
            *(first for first, _ in spans),
            self.total,
        ]:
            raise InvariantError(
                f"the shards of {self.retriever} do not hold each of its rows once: {spans}"
            )


class Router:
    """`Search` over `corpora`, with a bounded cache. Safe in several threads, which ask at most
    once. Where a shard does not answer it is a Fault: `retriever_down` when none did, else
    `retriever_partial`. `patience`: seconds after which another thread's search is not waited
    for."""

    def __init__(
        self, corpora: Mapping[str, Corpus], cache: int = CACHE, patience: float | None = None
    ) -> None:
        self.corpora, self._patience = dict(corpora), patience
        self._known: Known[tuple[str, str], list[Document]] = Known(cache)

    def search(
        self, queries: Sequence[str], k: int, corpus: str, options: Options | None = None
    ) -> Answers:
        """For each query at most `k` documents of `corpus`, best first, with their scores.
        `options`: a way in which the corpus can be searched (default: its own). Raises Fault;
        InputError for an unknown corpus."""
        if corpus == NO_CORPUS:
            return Answers([[] for _ in queries])
        known = self.corpora.get(corpus)
        if known is None:
            names = ", ".join([*self.corpora, NO_CORPUS])
            raise InputError(
                f"a search names a loaded corpus ({names})", corpus, "name one of these"
            )
        options, seconds = options or known.options, dict[str, float]()

        def work(keys: list[tuple[str, str]]) -> list[list[Document]]:
            return self._asked(known, [query for _, query in keys], k, options, seconds)

        def small(key: tuple[str, str], answer: list[Document]) -> bool:
            return k <= CACHED_K and len(key[1]) <= CACHED_QUERY

        way = _way(known.retriever, k, options)
        keys = [(way, query) for query in queries]
        try:
            found, missing = self._known.ask(keys, work, small, self._patience)
        except TimeoutError as error:
            raise Fault(DOWN, f"a search took longer than {self._patience:g} s") from error
        return Answers(
            [list(found[key]) for key in keys], seconds, sum(key not in missing for key in keys)
        )

    def _asked(
        self,
        corpus: Corpus,
        queries: list[str],
        k: int,
        options: Options,
        seconds: dict[str, float],
    ) -> list[list[Document]]:
        """Documents of different queries; `seconds` by stage are filled in."""
        fleet, candidates, vectors = corpus.fleet, max(k, options.rerank), None
        depth = max(candidates, DEPTH) if options.kind == HYBRID else candidates
        if options.kind != BM25:
            assert corpus.encoder is not None
            vectors, spent = corpus.encoder.encode_queries(queries)
            seconds.update(spent)
        with _stage(seconds, "search"):
            replies = fleet.search(queries, vectors, depth, options.knobs, options.kind)
        _whole(fleet, range(len(fleet.spans)), replies)
        with _stage(seconds, "merge"):
            rankings = [merge(parts, depth) for parts in zip(*replies.values(), strict=True)]
            hits = fuse(rankings, candidates) if len(rankings) > 1 else rankings[0]
        with _stage(seconds, "fetch"):
            documents = _fetched(fleet, hits)
        if options.rerank:
            assert corpus.reranker is not None
            with _stage(seconds, "rerank"):
                scores = corpus.reranker.scores(queries, documents)
            documents = [
                reranked(found, values) for found, values in zip(documents, scores, strict=True)
            ]
        return [found[:k] for found in documents]


def _fetched(fleet: Fleet, hits: Hits) -> list[list[Document]]:
    """The documents of the hits. Fault when a shard was lost since it was searched."""
    wanted = np.unique(hits.rows[hits.rows != NO_ROW])
    by_shard = {
        i: wanted[(wanted >= first) & (wanted < last)]
        for i, (first, last) in enumerate(fleet.spans)
    }
    by_shard = {i: rows for i, rows in by_shard.items() if len(rows)}
    fetched = fleet.fetch(by_shard) if by_shard else {}
    _whole(fleet, by_shard, fetched)
    held = {
        row: d
        for i, rows in by_shard.items()
        for row, d in zip(rows.tolist(), fetched[i], strict=True)
    }
    return [
        [Document(held[row].id, held[row].contents, score) for row, score in found]
        for found in hits.lists()
    ]


def _whole(fleet: Fleet, asked: Iterable[int], replied: Collection[int]) -> None:
    """Fault where a shard that was asked did not reply."""
    if missing := [i for i in asked if i not in replied]:
        rows = [last - first for first, last in fleet.spans]
        searched = sum(rows) - sum(rows[i] for i in missing)
        late = f"no answer in time from shard {', '.join(map(str, missing))}"
        raise Fault(
            PARTIAL if replied else DOWN, f"{searched} of {sum(rows)} rows were searched; {late}"
        )


@lru_cache(1024)
def _way(retriever: str, k: int, options: Options) -> str:
    """What an answer depends on besides the query, as a word: it is hashed and compared many times
    a search."""
    return f"{retriever} {k} {options}"


@contextmanager
def _stage(seconds: dict[str, float], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - began


def reranked(documents: Sequence[Document], scores: Sequence[float]) -> list[Document]:
    """Best first by the new scores, which the documents carry; ties keep their order."""
    pairs = sorted(zip(documents, scores, strict=True), key=lambda pair: -pair[1])
    return [replace(document, score=score) for document, score in pairs]
