"""Several shards' answers made one.

Owns the merge rule: higher score first, ties by row. Promises the answer of the single index when every shard answered.
Refuses to know how a shard is reached, and to guess when one is missing: that is the caller's fault to raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ssp.errors import InvariantError
from ssp.search.bm25 import Found, Hit

Ranked = TypeVar("Ranked", Hit, Found)


def merge(answers: Sequence[Sequence[Sequence[Ranked]]], k: int) -> list[list[Ranked]]:
    """Best `k` a query over the shards' answers (`search` or `retrieve` of each shard, for the same queries).

    `answers` is [shards][queries][hits]. Raises InvariantError when the shards did not answer the same number of queries.
    """
    sizes = {len(answer) for answer in answers}
    if len(sizes) > 1:
        raise InvariantError(f"shards answered different numbers of queries: {sorted(sizes)}")
    return [
        sorted((hit for hits in shards for hit in hits), key=lambda hit: (-hit[1], hit[0]))[:k]
        for shards in zip(*answers, strict=True)
    ]
