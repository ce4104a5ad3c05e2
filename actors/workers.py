"""The workers that compute, as Ray actors: players, judges, learners.

A player and a judge hold no state between calls. A learner's state is lost with its process, so its
death takes the run back to the last checkpoint."""

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from actors.fleet import connect_search
from actors.process import Alive, Calm, Guarded
from ssp.base import devices
from ssp.base.crew import Crew, CrewCall
from ssp.capacity.memory import threads
from ssp.config.schema import Config
from ssp.selfplay.crews.seams import Players
from ssp.selfplay.workers.judge import Judge
from ssp.selfplay.workers.learner import Learner, SimulatedLearner
from ssp.selfplay.workers.player import Player, PlayerPair

_beside: Any = ray.method(concurrency_group="transfer")


class _Player(Guarded, Player):  # type: ignore[misc]
    """A player that searches over the retriever actors of `run`, and takes weights in a thread
    beside the one of `play`."""

    share = staticmethod(lambda cfg, role, *rest: threads.player(cfg, role))

    def __init__(
        self, cfg: Config, role: str, model_dir: Path, run: str, episodes_dir: Path
    ) -> None:
        super().__init__(cfg, role, model_dir, connect_search(cfg, run), episodes_dir)

    def play(self, *args: Any) -> Any:
        # with OpenMP the number belongs to the thread, which is not the constructor's
        threads.use(self._threads)
        block, report = super().play(*args)
        return tuple(block), report  # which Ray packs at once (`actors.crew`)

    refresh = _beside(Player.refresh)


@ray.remote(concurrency_groups={"transfer": 1})  # type: ignore[call-overload]
class PlayerActor(_Player):
    """Plays one role. The dashboard tells players apart by their names, which say the role."""


@ray.remote(concurrency_groups={"transfer": 2}, max_concurrency=2)  # type: ignore[call-overload]
class PairActor(Guarded, PlayerPair):
    """Players of several roles on one engine. Each role has a thread in which it plays, and one in
    which it takes weights."""

    def __init__(self, cfg: Config, models: dict[str, Path], run: str, episodes_dir: Path) -> None:
        super().__init__(cfg, models, connect_search(cfg, run), episodes_dir)

    share = staticmethod(lambda cfg, *rest: threads.player(cfg, cfg.spec.answerer))

    def play(self, *args: Any) -> Any:
        """See `PlayerPair.play`."""
        threads.use(self._threads)  # as in `_Player.play`
        return super().play(*args)

    @_beside
    def as_role(self, *args: Any) -> Any:
        """See `PlayerPair.as_role`."""
        return super().as_role(*args)


class RoleCrew(Crew[Players]):
    """The players of one role, over a crew of pairs. A fault has the name of the pairs' crew: both
    roles lose the engine."""

    def __init__(self, pairs: Crew[Any], role: str) -> None:
        super().__init__(Players, role)
        self._pairs = pairs
        self._role = role

    @property
    def size(self) -> int:
        """As many as there are pairs."""
        return self._pairs.size

    async def perform(self, worker: int, call: CrewCall, *args: Any) -> Any:
        """See `Crew.perform`."""
        if call.name == "play":
            return await self._pairs.perform(worker, call, self._role, *args)
        as_role = replace(call, name="as_role")
        return await self._pairs.perform(worker, as_role, self._role, call.name, *args)


@ray.remote
class JudgeActor(Guarded, Judge):
    """The verifier of the referee, and the answer judge. Its calls are pure: any judge may repeat
    one."""

    share = staticmethod(lambda cfg, *rest: threads.judge(cfg))


class _Learning(Calm):
    share = staticmethod(lambda cfg, role, *rest: threads.learner(cfg, role))

    def __init__(self, *args: Any) -> None:
        devices.keep_pages()
        super().__init__(*args)


@ray.remote
class LearnerActor(_Learning, Learner):
    """See `ssp.selfplay.workers.learner.Learner`."""


@ray.remote
class SimulatedLearnerActor(Alive, SimulatedLearner):
    """See `ssp.selfplay.workers.learner.SimulatedLearner`."""


class _Waiting(Learner):
    """A learner whose group has not met yet."""

    def __init__(self, cfg: Config, role: str, model_dir: Path, rank: int) -> None:
        self._cfg = cfg
        self._role = role
        self._model_dir = model_dir
        self._rank = rank
        self._opened: socket.socket | None = None


@ray.remote
class RankActor(_Learning, _Waiting):
    """One rank of a learner; it computes once `form` has returned."""

    def node(self) -> tuple[str, str]:
        """The id of this node, and the address at which other nodes reach it."""
        return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()

    def open(self, host: str) -> tuple[str, int]:
        """Open a free port as rank 0; returns the address where the group will form."""
        self._opened = socket.create_server((host, 0))
        address, port = self._opened.getsockname()
        return str(address), int(port)

    def form(self, address: tuple[str, int], seconds: float) -> None:
        """Meet the other ranks at `address` and make the learner; a collective may take
        `seconds`."""
        from ssp.learning.backends.ranks import join

        ranks = self._cfg.block(self._role).learner.ranks
        group = join(self._rank, ranks, address, seconds, self._opened)
        Learner.__init__(self, self._cfg, self._role, self._model_dir, group)
