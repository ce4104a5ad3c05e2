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
    """What a request may set of an approximate index (0: as built): candidates that HNSW keeps,
    lists that IVF visits."""

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
    def of(cls, found: Sequence[tuple[Rows, npt.NDArray[np.float32]]], k: int) -> Hits:
        """Of ragged answers (rows and scores of each query, at most `k`, in order)."""
        rows = np.full((len(found), k), NO_ROW, dtype=np.int64)
        scores = np.full((len(found), k), -np.inf, dtype=np.float32)
        for i, (some, values) in enumerate(found):
            rows[i, : len(some)] = some
            scores[i, : len(some)] = values
        return cls(rows, scores)

    def lists(self) -> list[list[tuple[int, float]]]:
        """(row, score) of each query, without the filling."""
        return [
            [(row, score) for row, score in zip(rows, scores, strict=True) if row != NO_ROW]
            for rows, scores in zip(self.rows.tolist(), self.scores.tolist(), strict=True)
        ]


def merge(parts: Sequence[Hits], k: int) -> Hits:
    """Best `k` over the answers of disjoint sets of rows to the same queries. InvariantError for
    different queries."""
    if len({len(part) for part in parts}) != 1:
        raise InvariantError(
            f"shards answered different numbers of queries: {[len(part) for part in parts]}"
        )
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
        fused.append(
            (np.array(best, np.int64), np.array([scores[row] for row in best], np.float32))
        )
    return Hits.of(fused, k)


class Answers(list[list[Document]]):
    """Documents of each query, best first, as a `Search` gives them. `seconds` by stage of the
    batch that the queries were answered in: tokenise, encode, search, merge, fetch, rerank (those
    that there were), wait. `known`: how many of the queries were answered from the cache."""

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
    """What of a document goes into a fingerprint."""
    parts = (document.id.encode(), document.contents.encode())
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)
