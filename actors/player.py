"""The proposer and the solver as Ray actors, two classes so that the dashboard tells them apart.

Each owns one engine and the way to the retriever shards, and holds no state between calls.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ray

from actors.fleet import connect_search
from actors.process import Guarded
from actors.transfer import TRANSFER, Receiving
from ssp.base.episode import PROPOSER, SOLVER
from ssp.capacity.memory import threads
from ssp.config.schema import Config
from ssp.selfplay.workers.player import Player


class _Player(Receiving, Guarded, Player):  # type: ignore[misc]
    """See `ssp.selfplay.workers.player.Player`. It searches over the retriever actors of `run`."""

    def share(self, *args: Any) -> int:
        """See `Calm.share`."""
        return threads.player(*args[:2])

    def __init__(self, cfg: Config, role: str, model_dir: Path, run: str, episodes_dir: Path) -> None:
        super().__init__(cfg, role, model_dir, connect_search(cfg, run), episodes_dir)


@ray.remote(concurrency_groups=TRANSFER)  # type: ignore[call-overload]
class ProposerActor(_Player):
    """Writes questions."""


@ray.remote(concurrency_groups=TRANSFER)  # type: ignore[call-overload]
class SolverActor(_Player):
    """Answers them."""


PLAYERS = {PROPOSER: ProposerActor, SOLVER: SolverActor}
"""By role."""
