"""Retrieval: the BM25 index, its folder, its shards, the merge, and the sources that a rollout asks."""

from ssp.search.bm25 import Bm25Index, build, fingerprint
from ssp.search.router import LocalSearch, merge
from ssp.search.source import HttpSearch
from ssp.search.store import load, save

__all__ = ["Bm25Index", "HttpSearch", "LocalSearch", "build", "fingerprint", "load", "merge", "save"]
