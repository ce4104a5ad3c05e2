"""One role's learner as a Ray actor. Its state is weights, optimizer and algorithm: lost with the process, so its death
takes the run back to the last checkpoint."""

from __future__ import annotations

from pathlib import Path

import ray

from actors.process import calm
from ssp.config.schema import Config
from ssp.selfplay.workers import Learner


@ray.remote
class LearnerActor(Learner):
    """See `ssp.selfplay.workers.Learner`."""

    def __init__(self, cfg: Config, role: str, model_dir: Path) -> None:
        calm()
        super().__init__(cfg, role, model_dir)
