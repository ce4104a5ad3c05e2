"""What an index answers, and how the answers of several become one (higher score first, ties by
row)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ssp.base.episode import Document
from ssp.base.errors import InvariantError

Rows = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]

NO_ROW = -1
"""Fills `Hits.rows` where fewer rows were found than asked for; its score is -inf."""
RRF = 60
"""The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009)."""


@dataclass(frozen=True)
class Knobs:
    """What a request may set of an approximate index: candidates that HNSW keeps, lists that IVF
    visits. 0 leaves it as built."""

    ef_search: int = 0
    nprobe: int = 0


@dataclass(frozen=True)
class Hits:
    """The best rows of a batch of queries, best first, ties by row. `rows [n, m] int64` counts in
    the whole corpus (`NO_ROW` at the end where fewer were found); `scores [n, m] float32`."""

    rows: Rows
    scores: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def none(cls, queries: int, k: int) -> Hits:
        """No row for any of so many queries."""
        rows = np.full((queries, k), NO_ROW, dtype=np.int64)
        return cls(rows, np.full((queries, k), -np.inf, dtype=np.float32))

    @classmethod
    def of(cls, ranked: Sequence[tuple[Rows, npt.NDArray[np.float32]]], k: int) -> Hits:
        """The rows and scores of each query, in order: at most `k` of each."""
        hits = cls.none(len(ranked), k)
        for i, (rows, scores) in enumerate(ranked):
            hits.rows[i, : len(rows)] = rows
            hits.scores[i, : len(rows)] = scores
        return hits

    def named(self) -> Rows:
        """The different rows, in order, without the filling."""
        rows = np.unique(self.rows)
        return rows[rows != NO_ROW]

    def lists(self) -> list[list[tuple[int, float]]]:
        """(row, score) of each query, without the filling."""
        lists = []
        for rows, scores in zip(self.rows.tolist(), self.scores.tolist(), strict=True):
            pairs = zip(rows, scores, strict=True)
            lists.append([pair for pair in pairs if pair[0] != NO_ROW])
        return lists


def merge(parts: Sequence[Hits], k: int) -> Hits:
    """Best `k` over the answers of disjoint sets of rows to the same queries. InvariantError for
    different queries."""
    queries = [len(part) for part in parts]
    if len(set(queries)) != 1:
        raise InvariantError(f"shards answered different numbers of queries: {queries}")
    rows = np.concatenate([part.rows for part in parts], axis=1)
    scores = np.concatenate([part.scores for part in parts], axis=1)
    if len(parts) == 1:
        return Hits(rows[:, :k], scores[:, :k])
    order = np.lexsort((rows, -scores), axis=-1)[:, :k]
    return Hits(np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1))


def fuse(rankings: Sequence[Hits], k: int) -> Hits:
    """Best `k` by reciprocal rank fusion: a row's score is the sum over rankings of 1 / (60 + its
    rank from 1)."""
    fused = []
    for query in range(len(rankings[0])):
        scores: dict[int, float] = {}
        for ranking in rankings:
            for rank, row in enumerate(ranking.rows[query].tolist(), start=1):
                if row != NO_ROW:
                    scores[row] = scores.get(row, 0.0) + 1.0 / (RRF + rank)
        best = sorted(scores, key=lambda row: (-scores[row], row))[:k]
        best_scores = np.array([scores[row] for row in best], np.float32)
        fused.append((np.array(best, np.int64), best_scores))
    return Hits.of(fused, k)


class Answers(list[list[Document]]):
    """Documents of each query, best first, as a `Search` gives them.

    `seconds`: time by stage of the batch that answered the queries (tokenise, encode, search,
    merge, fetch, rerank, wait; only the stages that it had). `known`: how many of the queries were
    answered from the cache."""

    def __init__(
        self,
        documents: Sequence[list[Document]] = (),
        seconds: Mapping[str, float] | None = None,
        known: int = 0,
    ) -> None:
        super().__init__(documents)
        self.seconds, self.known = dict(seconds or {}), known


class Search(Protocol):
    """What answers searches."""

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        """At most `k` documents for each query, best first. Fault when the service fails."""


def printed(document: Document) -> bytes:
    """The bytes of a document that go into a fingerprint."""
    parts = (document.id.encode(), document.contents.encode())
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)
