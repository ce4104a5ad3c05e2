"""The whole program in one process: the same `Cast`, with workers that are plain objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ssp.base.crew import Crew, LocalCrew
from ssp.config.crews import learners, players
from ssp.config.schema import Config
from ssp.game.rollout import Search
from ssp.record.ledger import HomeLedger
from ssp.record.ledger.writer import LedgerWriter
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.crews.seams import Judges, Learners, Players
from ssp.selfplay.workers.judge import Judge
from ssp.selfplay.workers.learner import Learner, SimulatedLearner
from ssp.selfplay.workers.player import Player


def local_cast(cfg: Config, models: dict[str, Path], search: Search, ledger: Path, episodes: Path) -> Cast:
    """Build every worker here. `models`: role → start model folder, for the roles that play."""
    place = cfg.placement

    def playing(role: str) -> Crew[Players]:
        return LocalCrew(Players, role, lambda i: Player(cfg, role, models[role], search, episodes), players(cfg, role))

    def learner(name: str) -> Crew[Learners]:
        made: Any = SimulatedLearner if cfg.block(name).learner.kind == "simulated" else Learner
        return LocalCrew(Learners, f"learner-{name}", lambda i: made(cfg, name, models[name]))

    taught: dict[str, Crew[Learners]] = {}
    for name, roles in learners(cfg).items():
        taught |= dict.fromkeys(roles, learner(name))
    return Cast(
        players={role: playing(role) for role in cfg.roles},
        judges=LocalCrew(Judges, "judge", lambda i: Judge(cfg, models[cfg.roles[-1]]), place.judges),
        learners=taught,
        ledger=LocalCrew(LedgerWriter, "ledger", lambda i: HomeLedger(ledger)),
    )
