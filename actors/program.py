"""The program on a cluster: all actors of a run, which it names, wires, starts and ends. It ends
no others."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors import fleet, learners, restarts
from actors.crew import LastCall, Patience, RayCrew
from actors.placement import Groups
from actors.retriever import placed
from actors.services import LedgerActor
from actors.workers import JudgeActor, PairActor, PlayerActor, RoleCrew
from ssp.base.crew import Crew
from ssp.capacity.memory.processes import FLEET
from ssp.capacity.placement import Plan
from ssp.config.crews import at_once, players, ranks, shared_gpus, takes_turns
from ssp.config.crews import learners as learners_of
from ssp.config.schema import Config
from ssp.record.ledger.writer import LedgerWriter
from ssp.record.runfolder import RunFolder
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.crews.seams import Judges, Learners, Players, Retriever

W = TypeVar("W")


def needed_cpus(cfg: Config) -> float:
    """The number of CPUs that all actors of a run ask Ray for together."""
    return cfg.placement.cpus * (computing(cfg) + fleet.size(cfg))


def computing(cfg: Config) -> int:
    """The number of actors that compute: players, judges, learners."""
    numbers = [players(cfg, role) for role in cfg.roles]
    playing = max(numbers) if cfg.placement.layout == "shared-base" else sum(numbers)
    learning = sum(ranks(cfg, name) for name in learners_of(cfg))
    return playing + cfg.placement.judges + learning


class Program:
    """All actors of one run."""

    def __init__(
        self,
        cfg: Config,
        folder: RunFolder,
        models: dict[str, Path],
        say: Callable[[str], None],
        plan: Plan,
    ) -> None:
        """`models`: the start model's folder of each role that plays; `plan`: where actors that
        need GPUs go. InputError when the cluster does not give what the plan asks for."""
        self._cfg = cfg
        self._run = folder.name
        self._models = models
        self._say = say
        self._groups = Groups(plan, cfg, folder.name)
        self._crews: list[RayCrew[Any]] = []
        self._patience = Patience(cfg.placement.call_timeout, cfg.ray.start_timeout)
        self.retriever = []  # players reach them by name, so here they only start
        for part in fleet.parts(cfg):
            crew = self._crew(
                Retriever, part.name, part.actor, part.seats, part.args, **placed(cfg)
            )
            self.retriever.append(crew)
        # Learners that take turns with engines on GPUs start once these sleep.
        self._learners_wait = takes_turns(cfg)
        # The ledger is on this node, whose disk has the run folder; it asks for no CPU, which a
        # head may not have.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        own: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": here}
        model = models[cfg.spec.answerer]
        self.cast = Cast(
            players=self._players(folder.episodes),
            judges=self._crew(Judges, "judge", JudgeActor, cfg.placement.judges, (cfg, model)),
            learners={} if self._learners_wait else self._learners(),
            ledger=self._crew(LedgerWriter, "ledger", LedgerActor, 1, (folder.ledger,), **own),
        )

    @property
    def actors(self) -> list[tuple[str, Any, LastCall | None]]:
        """Name, handle and last call of every actor of the run."""
        actors = []
        for crew in self._crews:
            for member in crew.members:
                actors.append((member.name, member.handle, crew.last.get(member.name)))
        return actors

    async def ready(self) -> None:
        """Wait until every actor answers. Engines that take turns with learners on GPUs start
        before these, find their share of the memory free, and sleep."""
        if self._learners_wait:
            await asyncio.gather(*[crew.ready() for crew in self._crews])
            for gpus in shared_gpus(self._cfg):
                for role in gpus.sleepers:
                    crew = self.cast.players[role]
                    await asyncio.gather(*[crew[worker].sleep() for worker in range(crew.size)])
            self._say("engines sleep; learners are starting")
            self.cast.learners.update(self._learners())
        await asyncio.gather(*[crew.ready() for crew in self._crews])
        place = await self.cast.ledger.first.where()
        if place:
            self._say(place)

    def end(self) -> None:
        """Stop the actors of this program, and only these, and give back its placement groups."""
        fleet.stop(self._run, [handle for _, handle, _ in self.actors])
        self._groups.end()

    def _players(self, episodes: Path) -> dict[str, Crew[Players]]:
        """The players of each role, on engines of their own or on one base."""
        cfg = self._cfg
        # The run's name, no handle: an actor's restart would need the object behind it again.
        rest = (self._run, episodes)
        if cfg.placement.layout == "shared-base":
            number = players(cfg, cfg.roles[0])  # as many of each role
            pairs = self._crew(Players, FLEET, PairActor, number, (cfg, self._models, *rest))
            return {role: RoleCrew(pairs, role) for role in cfg.roles}
        crews: dict[str, Crew[Players]] = {}
        for role in cfg.roles:
            args = (cfg, role, self._models[role], *rest)
            number = players(cfg, role)
            threads = at_once(cfg, role)
            crews[role] = self._crew(
                Players, role, PlayerActor, number, args, max_concurrency=threads
            )
        return crews

    def _learners(self) -> dict[str, Crew[Learners]]:
        """The crew that trains each role; roles that share a policy have the same one."""
        crews: dict[str, Crew[Learners]] = {}
        for role, trained in learners_of(self._cfg).items():
            name = f"learner-{role}"
            crew = learners.LearnerCrew(
                self._cfg,
                role,
                self._models[role],
                name,
                partial(self._learner_options, name),
                self._patience,
                self._say,
            )
            self._crews.append(crew)
            crews |= dict.fromkeys(trained, crew)
        return crews

    def _learner_options(self, learner: str, rank: int) -> dict[str, Any]:
        """Ray's options of one rank: name, CPUs, place."""
        name = f"{self._run}-{learner}-{rank}"
        cpus = self._cfg.placement.cpus
        return {"name": name, "num_cpus": cpus, **self._groups.where(learner, rank)}

    def _crew(
        self,
        kind: type[W],
        name: str,
        actor: Any,
        seats: int | list[tuple[str, int]],
        args: tuple[Any, ...],
        **own: Any,
    ) -> RayCrew[W]:
        """Start the actors of one crew. `seats`: process and number of each in the plan, or how
        many of process `name`. `own`: options of Ray for these actors in place of the usual
        ones."""
        if isinstance(seats, int):
            seats = [(name, i) for i in range(seats)]
        usual = {"num_cpus": self._cfg.placement.cpus, **restarts.options(self._cfg, actor), **own}
        handles = []
        for i, seat in enumerate(seats):
            options = {"name": f"{self._run}-{name}-{i}", **usual, **self._groups.where(*seat)}
            handles.append(actor.options(**options).remote(*args))
        crew = RayCrew(kind, name, handles, self._patience, self._say)
        self._crews.append(crew)
        return crew
