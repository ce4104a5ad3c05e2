"""Retrieval: the BM25 index, its shards, the merge, and the sources that a rollout asks."""

from ssp.search.bm25 import Bm25Index, build, fingerprint

__all__ = ["Bm25Index", "build", "fingerprint"]
