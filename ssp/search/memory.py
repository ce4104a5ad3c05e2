"""A BM25 corpus that was never on disk: small worlds, tests, corpus files without an index."""

from __future__ import annotations

from collections.abc import Sequence

from ssp.base.episode import Document
from ssp.search.bm25 import build, fingerprint
from ssp.search.shard import HeldDocuments, Shard


def in_memory(documents: Sequence[Document], k1: float = 1.2, b: float = 0.25, shards: int = 1) -> list[Shard]:
    """All `shards` of `documents`, with exact BM25 shards. InputError as `bm25.build` and for a bad k1 or b."""
    whole = build((document.contents for document in documents), k1, b)
    name = retriever(fingerprint(documents), k1, b)
    parts = [whole.shard(i, shards) for i in range(shards)] if shards > 1 else [whole]
    return [
        Shard(name, whole.total, HeldDocuments(documents[part.first : part.first + part.rows], part.first), part)
        for part in parts
    ]


def retriever(corpus_sha256: str, k1: float, b: float) -> str:
    """The name of a BM25 retriever: all that decides its answers."""
    return f"bm25 k1={k1:g} b={b:g} {corpus_sha256[:16]}"
