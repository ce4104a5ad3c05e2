"""A proposer or a solver as a Ray actor. Owns one engine and the way to the retriever shards; holds no state between
calls."""

from __future__ import annotations

from pathlib import Path

import ray

from actors.process import Calm
from actors.shard import connect_search
from ssp.config.schema import Config
from ssp.selfplay.workers import Player


@ray.remote
class PlayerActor(Calm, Player):
    """See `ssp.selfplay.workers.Player`. `shards`: the names of the run's shard actors."""

    def __init__(self, cfg: Config, role: str, model_dir: Path, shards: list[str], episodes_dir: Path) -> None:
        super().__init__(cfg, role, model_dir, connect_search(cfg, shards), episodes_dir)
