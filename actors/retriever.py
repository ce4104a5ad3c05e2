"""Retriever shards as Ray actors, and search over them from inside a player.

Owns the fan-out, the merge and the deadline of a search. Promises the answer of the whole index or a Fault: a missing
shard is waited for (it restarts) until `retriever.timeout`, and never left out silently. Refuses to know episodes.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from actors.process import Alive
from ssp import build
from ssp.config.schema import Config
from ssp.episode import Document
from ssp.errors import Fault
from ssp.rollout import Search
from ssp.search.bm25 import Found
from ssp.search.router import NO_CORPUS, merge

CACHE_ENTRIES = 8192
"""Merged answers a player keeps; the corpora of a run do not change."""


@ray.remote
class ShardActor(Alive):
    """Rows of one shard of every corpus of the run."""

    def __init__(self, cfg: Config, index: int) -> None:
        self._shards = {
            name: build.index(path, cfg).shard(index, cfg.retriever.shards) for name, path in build.corpora(cfg).items()
        }

    def retrieve(self, queries: list[str], k: int, corpus: str) -> list[list[Found]]:
        """This shard's best `k` rows a query."""
        return self._shards[corpus].retrieve(queries, k)


class ShardSearch:
    """`Search` over shard actors, with a bounded cache of merged answers."""

    def __init__(self, shards: list[Any], timeout: float) -> None:
        self._shards, self._timeout = shards, timeout
        self._lock = threading.Lock()  # several lanes search at once
        self._cache: OrderedDict[tuple[str, int, str], list[Document]] = OrderedDict()

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        """For each query at most `k` documents, best first. Raises Fault("retriever_down") after `timeout` seconds."""
        if corpus == NO_CORPUS:
            return [[] for _ in queries]
        with self._lock:
            known = {q: self._cache[q, k, corpus] for q in queries if (q, k, corpus) in self._cache}
        missing = list(dict.fromkeys(q for q in queries if q not in known))
        if missing:
            found = merge(self._ask(missing, k, corpus), k)
            known |= {q: [document for _, _, document in hits] for q, hits in zip(missing, found, strict=True)}
            with self._lock:
                self._cache.update({(q, k, corpus): known[q] for q in missing})
                while len(self._cache) > CACHE_ENTRIES:
                    self._cache.popitem(last=False)
        return [known[query] for query in queries]

    def _ask(self, queries: list[str], k: int, corpus: str) -> list[Any]:
        deadline, wait = time.monotonic() + self._timeout, 0.05
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Fault("retriever_down", f"a shard did not answer within {self._timeout:.0f} s")
            try:
                calls = [shard.retrieve.remote(queries, k, corpus) for shard in self._shards]
                return list(ray.get(calls, timeout=left))
            except RayTaskError:
                raise  # the shard's own code: a bug
            except RayError:  # dead, restarting, late, or its answer is lost: it comes back, or the deadline ends this
                time.sleep(min(wait, max(0.0, deadline - time.monotonic())))
                wait = min(2 * wait, 1.0)


def connect_search(cfg: Config, shards: list[str]) -> Search:
    """The search that a player uses: the run's shard actors of these names, and the server at `retriever.url`, if any."""
    return build.remote(cfg, ShardSearch([ray.get_actor(name) for name in shards], cfg.retriever.timeout))
