"""One shard: consecutive rows of a corpus with their indexes and documents. Its hits name rows of
the whole corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ssp.base.episode import Document
from ssp.base.values import Seconds
from ssp.search.bm25 import Bm25Index, build, fingerprint
from ssp.search.hits import Hits, Knobs, Rows, Vectors

if TYPE_CHECKING:
    from ssp.search.dense import FaissIndex, FlatIndex
    from ssp.search.documents import MappedDocuments

BM25, DENSE, HYBRID = "bm25", "dense", "hybrid"
KINDS = (BM25, DENSE, HYBRID)
"""How a corpus is searched; hybrid is both, fused."""


def kind_of(words: object, vectors: object) -> str:
    """How a corpus is searched that has an index of words, or of vectors, or both; None is what it
    has not."""
    if vectors is None:
        return BM25
    return DENSE if words is None else HYBRID


class Encoder(Protocol):
    """Queries → vectors."""

    def encode_queries(self, texts: Sequence[str]) -> tuple[Vectors, Seconds]:
        """`[n, d] float32`, and seconds by stage (tokenise, encode)."""


class Reranker(Protocol):
    """Scores documents against the query with a model that reads both."""

    def scores(
        self, queries: Sequence[str], documents: Sequence[Sequence[Document]]
    ) -> list[list[float]]:
        """One score a document, higher is better."""


@dataclass(frozen=True)
class Shard:
    """Rows [first, first + rows) of a corpus of `total` rows; `retriever` names all that decides
    its answers."""

    retriever: str
    total: int
    documents: HeldDocuments | MappedDocuments
    bm25: Bm25Index | None = None
    dense: FlatIndex | FaissIndex | None = None

    @property
    def kind(self) -> str:
        """How it is searched: with all that is here."""
        return kind_of(self.bm25, self.dense)

    @property
    def span(self) -> tuple[int, int]:
        """First row, last row + 1."""
        return self.documents.first, self.documents.first + self.documents.rows

    def search(
        self, texts: Sequence[str], vectors: Vectors | None, k: int, knobs: Knobs, kind: str
    ) -> list[Hits]:
        """One ranking for each index that `kind` asks: BM25's of `texts`, then the dense one's of
        `vectors`."""
        rankings = []
        if kind != DENSE:
            assert self.bm25 is not None
            rankings.append(self.bm25.search(texts, k))
        if kind != BM25:
            assert self.dense is not None and vectors is not None
            rankings.append(self.dense.search(vectors, k, knobs))
        return rankings

    def fetch(self, rows: Rows) -> list[Document]:
        """The documents of `rows`, in that order."""
        return self.documents.gather(rows)


class HeldDocuments:
    """Documents in memory, of rows from `first` on."""

    def __init__(self, documents: Sequence[Document], first: int = 0) -> None:
        self._documents, self.first, self.rows = documents, first, len(documents)
        self._named: dict[str, Document] = {}

    def named(self, names: Sequence[str]) -> list[Document | None]:
        """The document with each id or URL, of several the first; None for no such one."""
        if not self._named:
            by_url = {d.url: d for d in reversed(self._documents) if d.url}
            self._named = by_url | {d.id: d for d in self._documents}
        return [self._named.get(name) for name in names]

    def gather(self, rows: Rows) -> list[Document]:
        """Those of `rows`, in that order. IndexError for a row that is not held."""
        places = [int(row) - self.first for row in rows]
        if any(not 0 <= place < self.rows for place in places):
            last = self.first + self.rows - 1
            raise IndexError(f"rows outside {self.first}..{last} are asked for")
        return [self._documents[place] for place in places]


def in_memory(
    documents: Sequence[Document], k1: float = 1.2, b: float = 0.25, shards: int = 1
) -> list[Shard]:
    """All `shards` of `documents`, with exact BM25 shards. InputError as `bm25.build` and for a bad
    k1 or b."""
    whole = build((document.contents for document in documents), k1, b)
    name = retriever(fingerprint(documents), k1, b)
    made = []
    for i in range(shards):
        part = whole if shards == 1 else whole.shard(i, shards)
        held = HeldDocuments(documents[part.first : part.first + part.rows], part.first)
        made.append(Shard(name, whole.total, held, part))
    return made


def retriever(corpus_sha256: str, k1: float, b: float, stemmer: str = "") -> str:
    """The name of a BM25 retriever: all that decides its answers."""
    stems = f" {stemmer}" if stemmer else ""
    return f"bm25 k1={k1:g} b={b:g}{stems} {corpus_sha256[:16]}"
