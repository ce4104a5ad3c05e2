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
from typing import Any

import ray

from actors import fleet
from actors.crew import Patience, RayCrew
from actors.judge import JudgeActor
from actors.learner import LearnerActor
from actors.ledger import LedgerActor
from actors.placement import Groups, nowhere
from actors.player import ProposerActor, SolverActor
from actors.queue import QueueActor
from ssp.config.schema import Config
from ssp.episode import PROPOSER, SOLVER
from ssp.placement import Plan
from ssp.selfplay.cast import Cast, proposers, queue_names

REPEATS = 3
"""How often a lost call to an idempotent actor is made again before it counts as a fault."""

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
    return cfg.placement.cpus * (computing(cfg) + fleet.size(cfg) + len(queue_names(cfg)) + 1)


def computing(cfg: Config) -> int:
    """Actors that compute: players, judges, learners."""
    return proposers(cfg) + cfg.placement.solvers + cfg.placement.judges + len(cfg.roles)


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
        self._crews: list[RayCrew] = []
        self._handles: list[Any] = []
        place = cfg.placement
        self._retriever()
        models = sites.models

        def player(role: str) -> Callable[[int], tuple[Any, ...]]:
            # The run's name: a handle among the arguments of an actor is an object that its restart would need again.
            return lambda i: (cfg, role, models[role], run, sites.episodes)

        queue = (cfg.queue.items, cfg.queue.bytes)
        self.cast = Cast(
            proposers=self._crew("proposer", ProposerActor, proposers(cfg), player(PROPOSER)),
            solvers=self._crew("solver", SolverActor, place.solvers, player(SOLVER)),
            judges=self._crew("judge", JudgeActor, place.judges, lambda i: (cfg, models[SOLVER])),
            learners={
                role: self._crew(f"learner-{role}", LearnerActor, 1, _learner(cfg, role, models[role]))
                for role in cfg.roles
            },
            queues={name: self._crew(f"queue-{name}", QueueActor, 1, lambda i: queue) for name in queue_names(cfg)},
            ledger=self._crew("ledger", LedgerActor, 1, lambda i: (sites.ledger,), idempotent=True),
        )

    @property
    def workers(self) -> int:
        """Actors that compute."""
        return computing(self._cfg)

    async def ready(self) -> None:
        """Wait until every actor answers."""
        await asyncio.gather(*[crew.ready() for crew in self._crews])

    def end(self) -> None:
        """Stop the actors of this program, and only these, and give back its placement groups."""
        self._give_up_weights()
        fleet.stop(self._run, self._handles)
        if self._groups is not None:
            self._groups.end()

    def _give_up_weights(self) -> None:
        """Learners remove the files that they published; those of one that does not answer go at the next start."""
        asked = []
        for role in self._cfg.roles:
            with suppress(ValueError):  # it has died for good
                asked.append(ray.get_actor(f"{self._run}-learner-{role}-0").close.remote())
        if asked:
            ray.wait(asked, num_returns=len(asked), timeout=CLOSING)

    def _retriever(self) -> None:
        """Shards and encoders: players reach them by name, so here they only start."""
        handles = fleet.start(self._cfg, self._run, self._where)
        self._add("retriever", handles, Patience(self._cfg.placement.call_timeout, self._cfg.ray.start_timeout))

    def _crew(
        self, name: str, actor: Any, count: int, args: Callable[[int], tuple[Any, ...]], idempotent: bool = False
    ) -> RayCrew:
        place = self._cfg.placement
        handles = [
            actor.options(
                name=f"{self._run}-{name}-{i}",
                num_cpus=place.cpus,
                max_restarts=place.restarts,
                max_task_retries=-1 if idempotent else 0,
                **self._where(name, i),
            ).remote(*args(i))
            for i in range(count)
        ]
        repeats = REPEATS if idempotent else 0
        return self._add(name, handles, Patience(place.call_timeout, self._cfg.ray.start_timeout, repeats))

    def _add(self, name: str, handles: list[Any], patience: Patience) -> RayCrew:
        self._handles.extend(handles)
        crew = RayCrew(name, handles, patience, self._say)
        self._crews.append(crew)
        return crew


def _learner(cfg: Config, role: str, model: Path) -> Callable[[int], tuple[Any, ...]]:
    return lambda i: (cfg, role, model)
