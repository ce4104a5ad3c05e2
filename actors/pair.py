"""A proposer and a solver on one engine, as one Ray actor, and the crews that call it by role."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from actors.fleet import connect_search
from actors.process import Guarded
from actors.transfer import Hosted
from ssp.base.crew import Call, Crew
from ssp.base.episode import SOLVER
from ssp.capacity.memory import threads
from ssp.config.schema import Config
from ssp.selfplay.crews.seams import Players
from ssp.selfplay.workers.pair import PlayerPair
from ssp.selfplay.workers.player import Player


class _Player(Hosted, Player):
    """One of the two."""


@ray.remote(concurrency_groups={"transfer": 2}, max_concurrency=2)  # type: ignore[call-overload]
class PairActor(Guarded, PlayerPair):
    """`PlayerPair`: a thread for each role in which it plays, and one in which it takes weights."""

    def __init__(self, cfg: Config, models: dict[str, Path], run: str, episodes_dir: Path) -> None:
        super().__init__(cfg, models, connect_search(cfg, run), episodes_dir, _Player)

    def share(self, *args: Any) -> int:
        """See `Calm.share`."""
        return threads.player(args[0], SOLVER)

    def play(self, *args: Any) -> Any:
        """See `PlayerPair.play`."""
        threads.use(self._threads)  # as in `actors.transfer.Receiving`
        return super().play(*args)

    @ray.method(concurrency_group="transfer")
    def as_role(self, *args: Any) -> Any:
        """See `PlayerPair.as_role`."""
        return super().as_role(*args)


class RoleCrew(Crew[Players]):
    """The players of one role, over a crew of pairs."""

    def __init__(self, pairs: Crew[Any], role: str) -> None:
        super().__init__(Players, role)
        self._pairs, self._role = pairs, role

    @property
    def size(self) -> int:
        """As many as there are pairs."""
        return self._pairs.size

    async def perform(self, worker: int, call: Call, *args: Any) -> Any:
        """See `Crew.perform`; a fault is named after the engine, which both roles lose with it."""
        if call.name == "play":
            return await self._pairs.perform(worker, call, self._role, *args)
        return await self._pairs.perform(worker, replace(call, name="as_role"), self._role, call.name, *args)
