"""From queries to documents over the shards of named corpora: look up what is known, encode, ask
every shard, merge, fuse, fetch, rerank."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol

from ssp.base.episode import Document
from ssp.base.errors import Fault, InputError, InvariantError
from ssp.base.values import Seconds
from ssp.search.hits import Answers, Hits, Knobs, Rows, Vectors, fuse, merge
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


Replies = tuple[dict[int, list[Hits]], dict[int, Document]]
"""Rankings by shard, and documents by row."""


class Fleet(Protocol):
    """Reaches the shards of one corpus. `spans`: first row and last row + 1 of each."""

    @property
    def spans(self) -> Sequence[tuple[int, int]]: ...

    def search(
        self,
        texts: Sequence[str],
        vectors: Vectors | None,
        k: int,
        knobs: Knobs,
        kind: str,
        final: bool,
    ) -> Replies:
        """The rankings of every shard that answered in time, by shard; and by row the documents
        that came along. `final`: the best hits are the answer, so their documents may come."""

    def fetch(self, rows: Mapping[int, Rows]) -> dict[int, list[Document]]:
        """The documents of `rows` (by shard), of every shard that answered in time."""


class LocalFleet:
    """The shards in this process: never one is missing."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards = list(shards)
        self.spans = [shard.span for shard in shards]

    def search(
        self,
        texts: Sequence[str],
        vectors: Vectors | None,
        k: int,
        knobs: Knobs,
        kind: str,
        final: bool,
    ) -> Replies:
        """The rankings of every shard. No document comes along: a fetch costs no trip."""
        replies = {}
        for i, shard in enumerate(self.shards):
            replies[i] = shard.search(texts, vectors, k, knobs, kind)
        return replies, {}

    def fetch(self, rows: Mapping[int, Rows]) -> dict[int, list[Document]]:
        """The documents of `rows`, by shard."""
        return {i: self.shards[i].fetch(some) for i, some in rows.items()}


@dataclass(frozen=True)
class Options:
    """How one request is answered. `kind`: bm25, dense or hybrid. `rerank`: the number of
    candidates that the cross-encoder reads; 0 leaves it out."""

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
        firsts = [first for first, _ in spans]
        lasts = [last for _, last in spans]
        self.total = max(lasts, default=0)
        if not self.total or [0, *lasts] != [*firsts, self.total]:
            rule = f"the shards of {self.retriever} do not hold each of its rows once"
            raise InvariantError(f"{rule}: {spans}")


class Router:
    """`Search` over `corpora`, with a bounded cache. Safe in several threads, which ask an equal
    query once. A shard that does not answer is a Fault: `retriever_down` when none did, else
    `retriever_partial`. `patience`: seconds after which another thread's search is not waited
    for."""

    def __init__(
        self, corpora: Mapping[str, Corpus], cache: int = CACHE, patience: float | None = None
    ) -> None:
        self.corpora = dict(corpora)
        self._patience = patience
        self._known: Known[tuple[str, str], list[Document]] = Known(cache)

    def search(
        self, queries: Sequence[str], k: int, corpus: str, options: Options | None = None
    ) -> Answers:
        """For each query at most `k` documents of `corpus`, best first, with their scores.
        `options`: a way in which the corpus can be searched (default: its own). Raises Fault;
        InputError for an unknown corpus."""
        if corpus == NO_CORPUS:
            return Answers([[] for _ in queries])
        asked = self.corpora.get(corpus)
        if asked is None:
            names = ", ".join([*self.corpora, NO_CORPUS])
            rule = f"a search names a loaded corpus ({names})"
            raise InputError(rule, corpus, "name one of these")
        options = options or asked.options
        seconds: Seconds = {}

        def work(keys: list[tuple[str, str]]) -> list[list[Document]]:
            return _search(asked, [query for _, query in keys], k, options, seconds)

        def small(key: tuple[str, str], answer: list[Document]) -> bool:
            return k <= CACHED_K and len(key[1]) <= CACHED_QUERY

        way = _way(asked.retriever, k, options)
        keys = [(way, query) for query in queries]
        try:
            answers, missing = self._known.ask(keys, work, small, self._patience)
        except TimeoutError as error:
            raise Fault(DOWN, f"a search took longer than {self._patience:g} s") from error
        known = sum(key not in missing for key in keys)
        return Answers([list(answers[key]) for key in keys], seconds, known)


def _search(
    corpus: Corpus, queries: list[str], k: int, options: Options, seconds: Seconds
) -> list[list[Document]]:
    """Documents of different queries; the `seconds` of each stage are filled in."""
    fleet = corpus.fleet
    candidates = max(k, options.rerank)
    depth = max(candidates, DEPTH) if options.kind == HYBRID else candidates
    vectors = None
    if options.kind != BM25:
        assert corpus.encoder is not None
        vectors, spent = corpus.encoder.encode_queries(queries)
        seconds.update(spent)

    final = options.kind != HYBRID and not options.rerank
    with _stage(seconds, "search"):
        replies, documents = fleet.search(
            queries, vectors, depth, options.knobs, options.kind, final
        )
    _check_replies(fleet, range(len(fleet.spans)), replies)
    with _stage(seconds, "merge"):
        rankings = [merge(parts, depth) for parts in zip(*replies.values(), strict=True)]
        hits = fuse(rankings, candidates) if len(rankings) > 1 else rankings[0]
    with _stage(seconds, "fetch"):
        documents = documents or _fetch(fleet, hits)
        answers = []
        for ranked in hits.lists():
            scored = [(documents[row], score) for row, score in ranked]
            some = [Document(d.id, d.contents, score, d.url, d.heading) for d, score in scored]
            answers.append(some)

    if options.rerank:
        assert corpus.reranker is not None
        with _stage(seconds, "rerank"):
            scores = corpus.reranker.scores(queries, answers)
        answers = list(map(_reranked, answers, scores))
    return [answer[:k] for answer in answers]


def _fetch(fleet: Fleet, hits: Hits) -> dict[int, Document]:
    """The documents of the hits, by row. Fault when a shard was lost since it was searched."""
    wanted = hits.named()
    by_shard: dict[int, Rows] = {}
    for i, (first, last) in enumerate(fleet.spans):
        rows = wanted[(wanted >= first) & (wanted < last)]
        if len(rows):
            by_shard[i] = rows
    fetched = fleet.fetch(by_shard) if by_shard else {}
    _check_replies(fleet, by_shard, fetched)

    documents: dict[int, Document] = {}
    for i, rows in by_shard.items():
        documents.update(zip(rows.tolist(), fetched[i], strict=True))
    return documents


def _check_replies(fleet: Fleet, asked: Iterable[int], replied: Collection[int]) -> None:
    """Fault where a shard that was asked did not reply."""
    missing = [i for i in asked if i not in replied]
    if missing:
        rows = [last - first for first, last in fleet.spans]
        searched = sum(rows) - sum(rows[i] for i in missing)
        late = f"no answer in time from shard {', '.join(map(str, missing))}"
        told = f"{searched} of {sum(rows)} rows were searched; {late}"
        raise Fault(PARTIAL if replied else DOWN, told)


@lru_cache(1024)
def _way(retriever: str, k: int, options: Options) -> str:
    """All that an answer depends on besides the query, as one word: it is hashed and compared many
    times a search."""
    return f"{retriever} {k} {options}"


@contextmanager
def _stage(seconds: Seconds, name: str) -> Iterator[None]:
    """Add the time that the block takes to `seconds`."""
    began = time.perf_counter()
    yield
    seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - began


def _reranked(documents: Sequence[Document], scores: Sequence[float]) -> list[Document]:
    """Best first by the new scores, which the documents carry; ties keep their order."""
    pairs = sorted(zip(documents, scores, strict=True), key=lambda pair: -pair[1])
    return [replace(document, score=score) for document, score in pairs]
