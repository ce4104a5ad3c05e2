"""The program on a cluster: every actor of a run, named, wired and started.

Owns names, resources and restart budgets. Promises that the result is the same `Cast` that one process would use, that
every name carries the run's name, and that `end` stops exactly these actors. Refuses to know what they compute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors import fleet, learners, restarts
from actors.calls import Asked
from actors.crew import Patience, RayCrew
from actors.judge import JudgeActor
from actors.ledger import LedgerActor
from actors.members import ENCODER, SHARD
from actors.pair import PairActor, RoleCrew
from actors.placement import Groups, nowhere, unused
from actors.player import PLAYERS
from actors.queue import QueueActor
from actors.retriever import placed
from ssp.base.crew import Crew
from ssp.capacity.memory.processes import FLEET
from ssp.capacity.placement import Plan
from ssp.config.crews import at_once, players, ranks, shared_gpus, takes_turns
from ssp.config.crews import learners as learners_of
from ssp.config.schema import Config
from ssp.record.ledger.writer import LedgerWriter
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.crews.seams import Judges, Learners, Players, Retriever
from ssp.selfplay.queues.worker import QueueWorker

W = TypeVar("W")

CLOSING = 5.0
"""Seconds that learners get at a run's end to remove what they published."""


@dataclass(frozen=True)
class Sites:
    """Where things lie that actors open themselves: start model folder of each role that plays, ledger file,
    transcripts folder."""

    models: dict[str, Path]
    ledger: Path
    episodes: Path


def needed_cpus(cfg: Config) -> float:
    """CPUs that all actors of a run ask Ray for together."""
    return cfg.placement.cpus * (computing(cfg) + fleet.size(cfg) + len(cfg.roles))


def computing(cfg: Config) -> int:
    """Actors that compute: players, judges, learners."""
    place = cfg.placement
    playing = place.solvers if place.layout == "shared-base" else sum(players(cfg, role) for role in cfg.roles)
    return playing + cfg.placement.judges + sum(ranks(cfg, name) for name in learners_of(cfg))


class Program:
    """All actors of one run."""

    def __init__(
        self, cfg: Config, run: str, sites: Sites, say: Callable[[str], None], plan: Plan | None = None
    ) -> None:
        """`plan`: where what needs GPUs goes; without one, or without GPUs in it, all actors ask for CPUs only.

        InputError when the cluster does not give what the plan asks for.
        """
        self._cfg, self._run, self._say = cfg, run, say
        self._groups = None if plan is None else Groups(plan, cfg, run)
        self._where = nowhere if self._groups is None else self._groups.where
        self._crews: list[RayCrew[Any] | learners.LearnerCrew] = []
        self._handles: list[Any] = []
        self._models, self._later = sites.models, takes_turns(cfg)
        self._retriever()
        queue, judged = (cfg.queue.items, cfg.queue.bytes), sites.models[cfg.roles[-1]]
        self.cast = Cast(
            players=self._players(sites),
            judges=self._crew(Judges, "judge", JudgeActor, cfg.placement.judges, lambda i: (cfg, judged)),
            learners={} if self._later else self._learners(),
            queues={
                role: self._crew(QueueWorker, f"queue-{role}", QueueActor, 1, lambda i: queue) for role in cfg.roles
            },
            ledger=self._ledger(sites.ledger),
        )

    @property
    def workers(self) -> int:
        """Actors that compute."""
        return computing(self._cfg)

    @property
    def told(self) -> list[RayCrew[Any]]:
        """The crews that say how they are when asked: queues and the retriever."""
        crews = [crew for crew in self._crews if isinstance(crew, RayCrew)]
        return [crew for crew in crews if crew.name.startswith(("queue-", f"{SHARD}-", f"{ENCODER}-"))]

    @property
    def size(self) -> int:
        """All actors of the run."""
        return sum(len(crew.handles) for crew in self._crews)

    def at_death(self, actor: str) -> Asked | None:
        """What an actor that ended was last asked for; ranks of a learner are asked together."""
        for crew in self._crews:
            if actor.rpartition("-")[0] == crew.name:
                return crew.calls.at_death(actor if isinstance(crew, RayCrew) else f"{crew.name}-0")
        return None

    async def ready(self) -> None:
        """Wait until every actor answers. Engines that take turns with learners on GPUs start before these, find their share
        of the memory free, and sleep."""
        if self._later:
            await asyncio.gather(*[crew.ready() for crew in self._crews])
            for role in [role for gpus in shared_gpus(self._cfg) for role in gpus.sleepers]:
                crew = self.cast.players[role]
                await asyncio.gather(*[crew[worker].sleep() for worker in range(crew.size)])
            self._say("engines sleep; learners are starting")
            self.cast.learners.update(self._learners())
        await asyncio.gather(*[crew.ready() for crew in self._crews])
        if where := await self.cast.ledger.first.where():
            self._say(where)
        handles = [handle for crew in self._crews for handle in crew.handles]
        if idle := unused(ray.nodes(), set(await asyncio.gather(*[handle.home.remote() for handle in handles]))):
            self._say(idle)

    def end(self) -> None:
        """Stop the actors of this program, and only these, and give back its placement groups."""
        self._give_up_weights()
        fleet.stop(self._run, [*self._handles, *[handle for crew in self._crews for handle in crew.handles]])
        if self._groups is not None:
            self._groups.end()

    def _give_up_weights(self) -> None:
        """Learners remove the files that they published; those of one that does not answer go at the next start."""
        asked: list[Any] = []
        for role in learners_of(self._cfg):
            with suppress(ValueError):  # it has died for good
                asked.append(ray.get_actor(f"{self._run}-learner-{role}-0").close.remote())
        if asked:
            ray.wait(asked, num_returns=len(asked), timeout=CLOSING)

    def _players(self, sites: Sites) -> dict[str, Crew[Players]]:
        """The players of each role, on engines of their own or on one base."""
        cfg, run, place = self._cfg, self._run, self._cfg.placement
        # The run's name: a handle among the arguments of an actor is an object that its restart would need again.
        if place.layout == "shared-base":
            pairs = self._crew(
                Players, FLEET, PairActor, place.solvers, lambda i: (cfg, sites.models, run, sites.episodes)
            )
            return {role: RoleCrew(pairs, role) for role in cfg.roles}

        def crew(role: str) -> Crew[Players]:
            args = (cfg, role, sites.models[role], run, sites.episodes)
            count, threads = players(cfg, role), at_once(cfg, role)
            return self._crew(Players, role, PLAYERS[role], count, lambda i: args, max_concurrency=threads)

        return {role: crew(role) for role in cfg.roles}

    def _learners(self) -> dict[str, Crew[Learners]]:
        """The crew that trains each role; roles that share a policy have the same one."""
        place, found = self._cfg.placement, dict[str, Crew[Learners]]()
        patience = Patience(place.call_timeout, self._cfg.ray.start_timeout)
        for role, trained in learners_of(self._cfg).items():
            name = f"learner-{role}"

            def options(rank: int, name: str = name) -> dict[str, Any]:
                return {"name": f"{self._run}-{name}-{rank}", "num_cpus": place.cpus, **self._where(name, rank)}

            crew = learners.make(self._cfg, role, self._models[role], name, options, patience, self._say)
            self._crews.append(crew)
            found |= dict.fromkeys(trained, crew)
        return found

    def _ledger(self, file: Path) -> Crew[LedgerWriter]:
        """The one writer, on this node, whose disk has the run folder; it asks for no CPU, which a head may not have."""
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        own: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": here}
        return self._crew(LedgerWriter, "ledger", LedgerActor, 1, lambda i: (file,), **own)

    def _retriever(self) -> None:
        """Shards and encoders: players reach them by name, so here they only start."""
        for part in fleet.parts(self._cfg):
            self._crew(Retriever, part.name, part.actor, part.count, part.args, part.seat, **placed(self._cfg))

    def _crew(
        self,
        kind: type[W],
        name: str,
        actor: Any,
        count: int,
        args: Callable[[int], tuple[Any, ...]],
        seat: Callable[[int], tuple[str, int]] | None = None,
        **own: Any,
    ) -> RayCrew[W]:
        """`own`: options of Ray for these actors in place of the usual ones. `seat`: process and number in the plan."""
        place = self._cfg.placement
        usual = {"num_cpus": place.cpus, **restarts.options(self._cfg, actor), **own}

        def start(i: int) -> Any:
            options = usual | self._where(*(seat(i) if seat else (name, i)))
            return actor.options(name=f"{self._run}-{name}-{i}", **options).remote(*args(i))

        patience = Patience(place.call_timeout, self._cfg.ray.start_timeout)
        handles = [start(i) for i in range(count)]
        self._handles.extend(handles)
        crew = RayCrew(kind, name, handles, patience, self._say)
        self._crews.append(crew)
        return crew
