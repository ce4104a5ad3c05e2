"""BM25 over one corpus, and exact shards of it.

Owns the scored sparse matrix (tokens x documents; scores by bm25s with statistics of the whole corpus) and its queries.
Promises that a shard is a row slice of that matrix: merged shards give the ids, scores and ties (by row) of the whole.
Refuses to know files (`ssp.search.store`), other corpora, and who asks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import bm25s
import numpy as np
import numpy.typing as npt

from ssp.episode import Document
from ssp.errors import InputError
from ssp.search.hits import Hits, Rows
from ssp.search.tokens import tokenise


def fingerprint(documents: Sequence[Document]) -> str:
    """sha256 (hex) over the ids and contents in row order: equal for equal corpora, whatever file they came from."""
    digest = hashlib.sha256()
    for document in documents:
        for part in (document.id.encode(), document.contents.encode()):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    return digest.hexdigest()


class Bm25Index:
    """Rows [first, first + rows) of a corpus of `total` rows, searchable. Made by `build`, `shard` or `ssp.search.store`.

    `data [nnz] float32`, `local [nnz] int32` (row minus `first`, ascending in a column), `indptr [tokens + 1] int64`
    are the columns of the scored matrix; `vocabulary` maps a token to its column. Safe to call from several threads.
    """

    def __init__(
        self,
        data: npt.NDArray[np.float32],
        local: npt.NDArray[np.int32],
        indptr: npt.NDArray[np.int64],
        vocabulary: dict[str, int],
        first: int,
        rows: int,
        total: int,
    ) -> None:
        self.data, self.local, self.indptr, self.vocabulary = data, local, indptr, vocabulary
        self.first, self.rows, self.total = first, rows, total

    def shard(self, i: int, n: int) -> Bm25Index:
        """Shard `i` of `n`: consecutive rows, with the scores of this index. Shards may be empty when n > rows."""
        if self.rows != self.total:
            raise ValueError("a shard is cut from a whole index, not from a shard")
        first, last = shard_rows(self.total, i, n)
        arrays = slice_rows(self.data, self.local, self.indptr, first, last)
        return Bm25Index(*arrays, self.vocabulary, first, last - first, self.total)

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Best `k` rows for each query, best first, ties by row. Only scores above 0; a repeated word counts twice."""
        if k < 1:
            raise InputError("documents a query (k) must be at least 1", k, "set retriever.topk to 1 or more")
        return Hits.of([self._compute(query, k) for query in queries], k)

    def _compute(self, query: str, k: int) -> tuple[Rows, npt.NDArray[np.float32]]:
        columns = [c for c in (self.vocabulary.get(token) for token in tokenise(query)) if c is not None]
        if not columns:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        local, scores = self._gather(columns)
        best = top(scores, k)
        best = best[scores[best] > 0]
        return local[best].astype(np.int64) + self.first, scores[best]

    def _gather(self, columns: list[int]) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.float32]]:
        """Rows (ascending) that contain a query token, and their scores.

        A row's score is summed in float32 in the order of the query's tokens, on both paths below, so that a shard and
        the whole index get the same bits. bm25s's own query call is not used: it allocates a score for every document
        and adds element by element, several times the cost of a one-word query.
        """
        spans = [slice(int(self.indptr[c]), int(self.indptr[c + 1])) for c in columns]
        if len(spans) == 1:
            return self.local[spans[0]], self.data[spans[0]]
        postings = sum(span.stop - span.start for span in spans)
        if postings * 4 < self.rows:
            local = np.unique(np.concatenate([self.local[span] for span in spans]))
            scores = np.zeros(len(local), dtype=np.float32)
            for span in spans:
                scores[np.searchsorted(local, self.local[span])] += self.data[span]
            return local, scores
        dense = np.zeros(self.rows, dtype=np.float32)
        for span in spans:
            dense[self.local[span]] += self.data[span]
        return np.arange(self.rows, dtype=np.int32), dense


def build(documents: Sequence[Document], k1: float = 1.2, b: float = 0.25) -> Bm25Index:
    """Index the whole contents (title line too) of `documents` with BM25 (Lucene's idf and term weight, in bm25s).

    Raises InputError for no documents, a corpus without one token, or k1 < 0, b outside [0, 1].
    """
    if not k1 >= 0 or not 0 <= b <= 1 or not np.isfinite(k1):
        raise InputError("BM25 needs k1 >= 0 and 0 <= b <= 1", f"k1={k1}, b={b}", "set retriever.k1 and retriever.b")
    vocabulary: dict[str, int] = {}
    ids = [[vocabulary.setdefault(t, len(vocabulary)) for t in tokenise(d.contents)] for d in documents]
    if not vocabulary:
        found = f"{len(ids)} documents without a word" if ids else "no documents"
        raise InputError("an index needs at least one document with a word in it", found, "check the corpus file")
    scorer = bm25s.BM25(k1=k1, b=b, method="lucene", dtype="float32")
    scorer.index((ids, vocabulary), create_empty_token=False, show_progress=False)
    indptr = np.asarray(scorer.scores["indptr"], dtype=np.int64)
    local = np.asarray(scorer.scores["indices"], dtype=np.int32)
    columns = np.repeat(np.arange(len(vocabulary)), np.diff(indptr))
    order = np.lexsort((local, columns))
    data = np.asarray(scorer.scores["data"], dtype=np.float32)[order]
    return Bm25Index(data, local[order], indptr, vocabulary, 0, len(ids), len(ids))


def shard_rows(total: int, i: int, n: int) -> tuple[int, int]:
    """First row and last row + 1 of shard `i` of `n`; sizes differ by one at most. InputError unless 0 <= i < n."""
    if not 0 <= i < n:
        raise InputError("a shard number must be in 0..shards-1", f"shard {i} of {n}", "check retriever.shards")
    return total * i // n, total * (i + 1) // n


def slice_rows(
    data: npt.NDArray[np.float32],
    rows: npt.NDArray[np.int32],
    indptr: npt.NDArray[np.int64],
    first: int,
    last: int,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The columns restricted to rows [first, last), rows counted from `first`; scores untouched."""
    kept = np.flatnonzero((rows >= first) & (rows < last))
    return data[kept], rows[kept] - np.int32(first), np.searchsorted(kept, indptr).astype(np.int64)


def top(scores: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.intp]:
    """Positions of the `k` largest scores, largest first, equal scores by position (exact, also at the cut)."""
    if scores.size <= 4 * k or scores.size < 256:
        return np.argsort(-scores, kind="stable")[:k]
    cut = np.partition(scores, scores.size - k)[scores.size - k]
    candidates = np.flatnonzero(scores >= cut)
    return candidates[np.argsort(-scores[candidates], kind="stable")[:k]]
