"""The solver as a Ray actor. Owns one engine and the way to the retriever shards; holds no state between calls."""

from __future__ import annotations

from pathlib import Path

import ray

from actors.process import calm
from actors.shard import connect_search
from ssp.config.schema import Config
from ssp.episode import SOLVER
from ssp.selfplay.workers import Player


@ray.remote
class SolverActor(Player):
    """See `ssp.selfplay.workers.Player`."""

    def __init__(self, cfg: Config, model_dir: Path, shards: list[str], episodes_dir: Path) -> None:
        calm()
        super().__init__(cfg, SOLVER, model_dir, connect_search(cfg, shards), episodes_dir)
