"""Retrieval: corpora, indexes over them, their shards, and the sources that a rollout asks.

documents.py and store.py hold a corpus and its indexes on disk, builder.py makes them; bm25.py and dense.py rank;
encoder.py and reranker.py are the models; shard.py is one part, router.py makes an answer of all; batcher.py merges
requests; source.py and online.py ask other servers, recorded.py remembers.
"""

from ssp.search.bm25 import fingerprint
from ssp.search.hits import Answers, Hits, Knobs
from ssp.search.memory import in_memory
from ssp.search.router import Corpus, LocalFleet, Options, Router, local
from ssp.search.shard import Shard
from ssp.search.source import HttpSearch

__all__ = [
    "Answers",
    "Corpus",
    "Hits",
    "HttpSearch",
    "Knobs",
    "LocalFleet",
    "Options",
    "Router",
    "Shard",
    "fingerprint",
    "in_memory",
    "local",
]
