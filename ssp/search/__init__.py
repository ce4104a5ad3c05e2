"""Retrieval: ranking a corpus, its shards, and the sources that a rollout asks."""

from ssp.search.bm25 import fingerprint
from ssp.search.hits import Answers, Hits, Knobs
from ssp.search.router import Corpus, LocalFleet, Options, Router, local
from ssp.search.shard import Shard, in_memory
from ssp.search.source import HttpSearch

__all__ = ["Answers", "Corpus", "Hits", "HttpSearch", "Knobs", "LocalFleet", "Options", "Router", "Shard"]
__all__ += ["fingerprint", "in_memory", "local"]
