"""A router over one corpus in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ssp.search.router import Corpus, LocalFleet, Options, Router
from ssp.search.shard import Shard


def local(name: str, shards: Sequence[Shard], *options: Options, **parts: Any) -> Router:
    return Router({name: Corpus(shards[0].retriever, LocalFleet(shards), *options, **parts)})
