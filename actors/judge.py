"""The referee's verifier and the answer judge as a Ray actor. Its calls are pure: they may be made again anywhere."""

from __future__ import annotations

from pathlib import Path

import ray

from actors.process import calm
from ssp.config.schema import Config
from ssp.selfplay.workers import Judge


@ray.remote
class JudgeActor(Judge):
    """See `ssp.selfplay.workers.Judge`."""

    def __init__(self, cfg: Config, model_dir: Path) -> None:
        calm()
        super().__init__(cfg, model_dir)
