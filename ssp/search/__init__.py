"""Retrieval: ranking a corpus, its shards, and the sources that a rollout asks.

bm25.py and dense.py rank; shard.py is one part, router.py makes an answer of all; batcher.py merges requests, known.py asks
nothing twice; source.py asks other servers, recorded.py remembers. Index folders are in index/, models in encoders/,
engines of the web in online/.
"""

from ssp.search.bm25 import fingerprint
from ssp.search.hits import Answers, Hits, Knobs
from ssp.search.router import Corpus, LocalFleet, Options, Router, local
from ssp.search.shard import Shard, in_memory
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
