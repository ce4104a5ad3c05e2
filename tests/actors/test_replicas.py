"""A replica that joins a run asks for memory that is free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actors.retriever import ShardActor
from ssp.base.errors import InputError
from ssp.selfplay.settings import load


def test_a_replica_beyond_those_of_the_start_asks_for_free_memory(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "d0", "contents": "Title\\ntext"}\n')
    cfg = load("quickstart", [f"data.corpus={corpus}", "retriever.shards=1", "retriever.replicas=2"])
    cfg.data.eval = []
    actor: Any = ShardActor
    shard: Any = actor.__ray_metadata__.modified_class
    assert shard(cfg, 0, 110.0).describe()["train"].total == 1
    with pytest.raises(InputError, match="fits its memory"):
        shard(cfg, 0, 1e9)
    cfg.retriever.memory_mb = 100
    with pytest.raises(InputError, match="fits its memory"):
        shard(cfg, 0, 110.0)
