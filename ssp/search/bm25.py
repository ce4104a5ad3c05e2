"""BM25 over one corpus. A shard is a row slice of its scored matrix (tokens x documents): merged
shards give the ids, scores and ties (by row) of the whole."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from ssp.base.episode import Document
from ssp.search import postings
from ssp.search.hits import Hits, Rows, printed
from ssp.search.postings import Cut, cutter, tokenise

Scores = npt.NDArray[np.float32]
Places = npt.NDArray[np.int32]

SMALL = 4096
"""An index of at most so many rows is scored whole."""
WIDE, WIDE_BYTES = 8, 1 << 28
"""A token that is in more than one row of WIDE is also kept as one score a row from the first
question for it on, as long as these arrays of an index take at most WIDE_BYTES."""
BLOCK = 1 << 24
"""Postings that a slice looks at at once."""
FEW = 32
"""Candidates that are too few to thin out further."""
_EPS = float(np.finfo(np.float32).eps)
_LEAST = float(np.finfo(np.float32).tiny)
_scratch = threading.local()


def fingerprint(documents: Sequence[Document]) -> str:
    """sha256 (hex) over the ids and contents in row order: equal for equal corpora, whatever file
    they came from."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(printed(document))
    return digest.hexdigest()


class Bm25Index:
    """Rows [first, first + rows) of a corpus of `total` rows, searchable. Made by `build` or
    `shard`. `data [nnz] float32`, `local [nnz] int32` (row minus `first`, ascending in a column),
    `indptr [tokens + 1] int64` are the columns of the scored matrix; `vocabulary` maps a token to
    its column, and `cut` makes tokens of a query. Safe to call from several threads."""

    def __init__(
        self,
        data: Scores,
        local: Places,
        indptr: npt.NDArray[np.int64],
        vocabulary: dict[str, int],
        first: int,
        rows: int,
        total: int,
        cut: Cut = tokenise,
    ) -> None:
        self.cut = cut
        self.data, self.local, self.indptr, self.vocabulary = data, local, indptr, vocabulary
        self.first, self.rows, self.total = first, rows, total
        self._peaks = np.zeros(len(indptr) - 1, dtype=np.float32)
        self._wide: dict[int, Scores] = {}

    def shard(self, i: int, n: int) -> Bm25Index:
        """Shard `i` of `n` of a whole index: consecutive rows, with its scores. Shards may be empty
        when n > rows."""
        first, last = shard_rows(self.total, i, n)
        arrays = slice_rows(self.data, self.local, self.indptr, first, last)
        return Bm25Index(*arrays, self.vocabulary, first, last - first, self.total, self.cut)

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Best `k` rows for each query, best first, ties by row. Only scores above 0; a repeated
        word counts twice."""
        return Hits.of([self._compute(query, k) for query in queries], k)

    def _compute(self, query: str, k: int) -> tuple[Rows, Scores]:
        """The best rows of one query, and their scores. A row's score is summed in float32 in the
        order of the query's tokens, on whatever path the row was met, so that a shard and the whole
        index get the same bits."""
        vocabulary = self.vocabulary
        columns = [vocabulary[token] for token in self.cut(query) if token in vocabulary]
        if not columns:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        if len(columns) == 1:
            rows, scores = self._column(columns[0])
        elif self.rows <= SMALL:
            rows = np.arange(self.rows, dtype=np.int32)
            scores = np.zeros(self.rows, dtype=np.float32)
            for column in columns:
                held, values = self._column(column)
                scores[held] += values
        else:
            rows = self._candidates(columns, k)
            scores = np.zeros(len(rows), dtype=np.float32)
            for column in columns:
                scores += self._lookup(column, rows)
        best = top(scores, k)
        best = best[scores[best] > 0]
        return rows[best].astype(np.int64) + self.first, scores[best]

    def _candidates(self, columns: list[int], k: int) -> Places:
        """Local rows (ascending) that hold the best `k`, those tied with the last of them included.

        Tokens are added up by falling peak (their best score in any row), until the k-th best sum
        so far is above the peaks of the tokens left: no row without one of the added tokens can
        come in any more. The tokens left are then looked up for the rows that still can. Sums here
        round in another order than the answer's, so bounds have slack."""
        terms = []
        for column, count in Counter(columns).items():
            terms.append((self._peak(column) * count, column, np.float32(count)))
        terms.sort(reverse=True)
        slack = 1.0 - 4 * len(columns) * _EPS
        left = sum(peak for peak, _, _ in terms)  # what the tokens left can add to a row
        floor = 0.0  # at most the k-th best sum so far
        added = 0
        all_rows = False
        touched = []
        buffer = _zeros(self.rows)
        sums = buffer[: self.rows]
        for peak, column, times in terms:
            added += 1
            left -= peak
            wide = self._every_row(column)
            if wide is not None:
                sums += wide if times == 1 else wide * times
                values = sums
                all_rows = True
            else:
                rows, values = self._column(column)
                if times != 1:
                    values = values * times
                if added > 1:
                    values = sums.take(rows, mode="clip") + values
                sums[rows] = values
                touched.append(rows)
            floor = max(floor, at_least(values, k))
            if floor * slack > left:
                break

        least = max(floor * slack - left, _LEAST)
        rows, values = _drain(sums, None if all_rows else touched, least)
        _scratch.buffer = buffer

        for peak, column, times in terms[added:]:
            if len(rows) <= FEW + 2 * k:
                break
            left -= peak
            values = values + self._lookup(column, rows) * times
            floor = max(floor, at_least(values, k))
            kept = (values >= floor * slack - left).nonzero()[0]
            rows, values = rows[kept], values[kept]
        rows.sort()
        return rows

    def _column(self, column: int) -> tuple[Places, Scores]:
        span = slice(int(self.indptr[column]), int(self.indptr[column + 1]))
        return self.local[span], self.data[span]

    def _lookup(self, column: int, rows: Places) -> Scores:
        """The token's score in each of `rows`; 0 where it does not occur."""
        wide = self._every_row(column)
        if wide is not None:
            return wide.take(rows, mode="clip")
        local, data = self._column(column)
        if not len(local):
            return np.zeros(len(rows), dtype=np.float32)
        at = local.searchsorted(rows)
        return data.take(at, mode="clip") * (local.take(at, mode="clip") == rows)

    def _every_row(self, column: int) -> Scores | None:
        """The score in each row of a token that is in many rows, else None."""
        wide = self._wide.get(column)
        if wide is None and (len(self._wide) + 1) * self.rows * 4 <= WIDE_BYTES:
            rows, data = self._column(column)
            if len(rows) * WIDE > self.rows:
                wide = np.zeros(self.rows, dtype=np.float32)
                wide[rows] = data
                self._wide[column] = wide
        return wide

    def _peak(self, column: int) -> float:
        """The token's best score in any row."""
        if not self._peaks[column]:
            self._peaks[column] = self._column(column)[1].max(initial=0)
        return float(self._peaks[column])


def _zeros(rows: int) -> Scores:
    """A buffer of the thread's own, to be given back as zeros. One that a failed query took is not
    used again."""
    buffer: Scores | None = getattr(_scratch, "buffer", None)
    if buffer is None or len(buffer) < rows:
        buffer = np.zeros(rows, dtype=np.float32)
    _scratch.buffer = None
    return buffer


def _drain(sums: Scores, touched: list[Places] | None, least: float) -> tuple[Places, Scores]:
    """Rows whose sum is at least `least`, each once, and their sums; `sums` becomes zeros.
    `touched` lists all rows that are not 0, some of them twice; with None every row is looked
    at."""
    if touched is None:
        rows = (sums >= least).nonzero()[0].astype(np.int32)
        values = sums[rows]
        sums.fill(0)
        return rows, values
    best = []
    best_sums = []
    for rows in touched:
        values = sums.take(rows, mode="clip")
        kept = (values >= least).nonzero()[0]
        best.append(rows[kept])
        best_sums.append(values[kept])
        sums[rows] = 0  # so that a later list has none of them again
    return np.concatenate(best), np.concatenate(best_sums)


def build(texts: Iterable[str], k1: float = 1.2, b: float = 0.25, stemmer: str = "") -> Bm25Index:
    """The BM25 index of `texts` (a document's whole contents, title line too), with Lucene's idf
    and term weight, as in bm25s; `stemmer`: see `postings.cutter`. `texts` is read once. InputError
    for no text, texts without one token, or k1 < 0, b outside [0, 1]."""
    postings.check(k1, b)
    numbers = postings.Numbers()
    cut = cutter(stemmer)
    runs = list(postings.counted(texts, numbers, postings.IN_MEMORY, cut))
    matrix = postings.scored(lambda: runs, len(numbers), k1, b, postings.IN_MEMORY)
    total = sum(len(run.lengths) for run in runs)
    return Bm25Index(*matrix, dict(numbers), 0, total, total, cut)


def shard_rows(total: int, i: int, n: int) -> tuple[int, int]:
    """First row and last row + 1 of shard `i` (from 0) of `n`; sizes differ by one at most."""
    return total * i // n, total * (i + 1) // n


def slice_rows(
    data: Scores, rows: Places, indptr: npt.NDArray[np.int64], first: int, last: int
) -> tuple[Scores, Places, npt.NDArray[np.int64]]:
    """The columns restricted to rows [first, last), rows counted from `first`; scores untouched.
    Reads `BLOCK` postings at a time, so that memory-mapped arrays may be larger than memory."""
    scores = [data[:0]]
    places = [rows[:0]]
    ends = np.zeros_like(indptr)
    kept = 0
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        inside = np.flatnonzero((block >= first) & (block < last))
        scores.append(data[start : start + BLOCK][inside])
        places.append(block[inside] - np.int32(first))
        # where columns that end in this block end among what is kept
        bounds = np.searchsorted(indptr, [start, start + len(block)], side="right")
        columns = slice(*bounds)
        ends[columns] = kept + np.searchsorted(inside, indptr[columns] - start)
        kept += len(inside)
    return np.concatenate(scores), np.concatenate(places), ends


def top(scores: Scores, k: int) -> npt.NDArray[np.intp]:
    """Positions of the `k` largest scores, largest first, equal scores by position (exact, also at
    the cut)."""
    if scores.size <= 4 * k or scores.size < 256:
        return np.argsort(-scores, kind="stable")[:k]
    candidates = (scores >= at_least(scores, k)).nonzero()[0]
    return candidates[np.argsort(-scores[candidates], kind="stable")[:k]]


def at_least(scores: Scores, k: int) -> float:
    """A bound near the `k`-th largest of `scores` (>= 0), never above it; 0 when there are
    fewer."""
    if scores.size < k:
        return 0.0
    # k groups have a best at least as high as the k-th best group's
    if scores.size >= 2048 and scores.size >= 128 * k:
        groups = scores.size // 32
        scores = scores[: groups * 32].reshape(32, groups).max(axis=0)
    scores = scores.copy()
    scores.partition(scores.size - k)
    return float(scores[-k])
