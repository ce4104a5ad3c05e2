"""Retrieval: the BM25 index, its shards, the merge, and the sources that a rollout asks."""

from ssp.search.bm25 import Bm25Index, build, fingerprint
from ssp.search.router import LocalSearch, merge

__all__ = ["Bm25Index", "LocalSearch", "build", "fingerprint", "merge"]
