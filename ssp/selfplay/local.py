"""The whole program in one process: the same `Cast`, with workers that are plain objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ssp.base.crew import LocalCrew
from ssp.base.episode import PROPOSER, SOLVER
from ssp.config.crews import learners, proposers
from ssp.config.schema import Config
from ssp.game.rollout import Search
from ssp.record.ledger import HomeLedger
from ssp.selfplay.cast import Cast
from ssp.selfplay.queues import Queue
from ssp.selfplay.workers.judge import Judge
from ssp.selfplay.workers.learner import Learner
from ssp.selfplay.workers.player import Player
from ssp.selfplay.workers.simulated import SimulatedLearner


def local_cast(cfg: Config, models: dict[str, Path], search: Search, ledger: Path, episodes: Path) -> Cast:
    """Build every worker here. `models`: role → start model folder, for the roles that play."""
    place, budget = cfg.placement, cfg.queue
    return Cast(
        proposers=LocalCrew(
            "proposer", lambda i: Player(cfg, PROPOSER, models[PROPOSER], search, episodes), proposers(cfg)
        ),
        solvers=LocalCrew("solver", lambda i: Player(cfg, SOLVER, models[SOLVER], search, episodes), place.solvers),
        judges=LocalCrew("judge", lambda i: Judge(cfg, models[SOLVER]), place.judges),
        learners={role: crew for name in learners(cfg) for role, crew in _learner(cfg, name, models).items()},
        queues={name: LocalCrew(f"queue-{name}", lambda i: Queue(budget.items, budget.bytes)) for name in cfg.roles},
        ledger=LocalCrew("ledger", lambda i: HomeLedger(ledger)),
    )


def _learner(cfg: Config, name: str, models: dict[str, Path]) -> dict[str, LocalCrew]:
    """The learner called `name`, by the roles that it trains."""
    made: Any = SimulatedLearner if cfg.block(name).learner.kind == "simulated" else Learner
    return dict.fromkeys(learners(cfg)[name], LocalCrew(f"learner-{name}", lambda i: made(cfg, name, models[name])))
