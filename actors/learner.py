"""A learner as Ray actors: one, or one a rank. Their state is weights, optimizer and algorithm: lost with the process, so
the death of one takes the run back to the last checkpoint."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import ray

from actors.process import Alive, Calm
from actors.transfer import Hosted
from ssp.capacity.memory import threads
from ssp.config.schema import Config
from ssp.selfplay.workers.learner import Learner
from ssp.selfplay.workers.simulated import SimulatedLearner


class _Learning(Calm):
    """Mix-in before a rank."""

    def share(self, *args: Any) -> int:
        """See `Calm.share`."""
        return threads.learner(*args[:2])


@ray.remote
class LearnerActor(Hosted, _Learning, Learner):
    """See `ssp.selfplay.workers.learner.Learner`."""


@ray.remote
class SimulatedLearnerActor(Hosted, Alive, SimulatedLearner):
    """See `ssp.selfplay.workers.simulated.SimulatedLearner`."""


class _Waiting(Learner):
    """A learner whose group has not met yet."""

    def __init__(self, cfg: Config, role: str, model_dir: Path, rank: int) -> None:
        self._cfg, self._role, self._model_dir, self._rank = cfg, role, model_dir, rank
        self._opened: socket.socket | None = None


@ray.remote
class RankActor(Hosted, _Learning, _Waiting):
    """One rank of a learner; it computes once `form` has returned."""

    def node(self) -> tuple[str, str]:
        """The node's id, and the address at which other nodes reach it."""
        return ray.get_runtime_context().get_node_id(), self.host()

    def open(self, host: str) -> tuple[str, int]:
        """As rank 0: the address where the group will form."""
        from ssp.learning.backends.ranks import listen

        self._opened = listen(host)
        address, port = self._opened.getsockname()
        return str(address), int(port)

    def form(self, address: tuple[str, int], seconds: float) -> None:
        """Meet the other ranks at `address` and make the learner; a collective may take `seconds`."""
        from ssp.learning.backends.ranks import join

        world = self._cfg.block(self._role).learner.ranks
        group = join(self._rank, world, address, seconds, self._opened)
        Learner.__init__(self, self._cfg, self._role, self._model_dir, group)
