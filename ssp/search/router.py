"""Several shards' answers made one, and in-process search over named corpora.

Owns the merge rule: higher score first, ties by row. Promises the answer of the single index when every shard answered.
Refuses to know how a shard is reached, and to guess when one is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from ssp.episode import Document
from ssp.errors import InputError, InvariantError
from ssp.search.bm25 import Bm25Index, Found, Hit

Ranked = TypeVar("Ranked", Hit, Found)

NO_CORPUS = "none"
"""The corpus in which every search finds nothing: evaluation with search switched off."""


def merge(answers: Sequence[Sequence[Sequence[Ranked]]], k: int) -> list[list[Ranked]]:
    """Best `k` a query over the shards' answers (`search` or `retrieve` of each shard, for the same queries).

    `answers` is [shards][queries][hits]. InvariantError when the shards answered different numbers of queries.
    """
    sizes = {len(answer) for answer in answers}
    if len(sizes) > 1:
        raise InvariantError(f"shards answered different numbers of queries: {sorted(sizes)}")
    return [
        sorted((hit for hits in shards for hit in hits), key=lambda hit: (-hit[1], hit[0]))[:k]
        for shards in zip(*answers, strict=True)
    ]


class LocalSearch:
    """`Search` in this process: corpus name → the shards of its index, which together hold every row once.

    Raises InputError for an unknown corpus; never a Fault, since nothing here can be down.
    """

    def __init__(self, corpora: Mapping[str, Sequence[Bm25Index]]) -> None:
        if NO_CORPUS in corpora:
            raise InputError("a corpus has a name of its own", NO_CORPUS, "that name means: search finds nothing")
        for name, shards in corpora.items():
            _check_whole(name, shards)
        self._corpora = {name: list(shards) for name, shards in corpora.items()}

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        """For each query at most `k` documents of `corpus`, best first, with their scores."""
        if corpus == NO_CORPUS:
            return [[] for _ in queries]
        shards = self._corpora.get(corpus)
        if shards is None:
            known = ", ".join([*self._corpora, NO_CORPUS])
            raise InputError(f"a search names a loaded corpus ({known})", corpus, "name one of these")
        return [
            [document for _, _, document in found]
            for found in merge([shard.retrieve(queries, k) for shard in shards], k)
        ]


def _check_whole(name: str, shards: Sequence[Bm25Index]) -> None:
    row = 0
    for shard in sorted(shards, key=lambda shard: (shard.first, shard.rows)):
        if shard.first != row:
            break
        row += shard.rows
    if not shards or row != shards[0].total or len({shard.corpus_sha256 for shard in shards}) > 1:
        spans = ", ".join(f"{s.first}..{s.first + s.rows - 1} of {s.total}" for s in shards) or "no shard"
        raise InvariantError(f"the shards of corpus {name} do not hold each of its rows once: rows {spans}")
