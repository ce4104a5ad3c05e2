"""A learner that learns nothing, in the time that learning would take: for tests and benchmarks of everything around it.

Owns the number of its updates, which is its only weight. Promises the learner's interface, publications and checkpoints
included. Refuses to be told of probabilities: what it is given was played by a script.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ssp.base.episode import Episode
from ssp.config.schema import Config
from ssp.learning.warmup.taught import BatchPlan
from ssp.record.manifest import RECORD, read_record
from ssp.selfplay.transfer.parcel import OBJECT_STORE, Parcel, Weights, size
from ssp.selfplay.transfer.publisher import Publisher


class SimulatedLearner(Publisher):
    """The learner called after `role`; `model_dir` is not looked at."""

    def __init__(self, cfg: Config, role: str, model_dir: Path) -> None:
        learner = cfg.block(role).learner
        self._token = learner.token_ms / 1e3 / learner.ranks
        self.updates = 0

    def exported(self) -> Weights:
        """The number of updates."""
        return {"updates": np.array([self.updates], np.float32)}

    def anchor_weights(self) -> tuple[Parcel, dict[str, float]]:
        """The weights of the reference: there is none, so the same."""
        weights = self.exported()
        return Parcel(OBJECT_STORE, -1, size(weights), weights), {}

    def update(
        self, plans: Mapping[str, BatchPlan], *blocks: list[Episode]
    ) -> tuple[Parcel, dict[str, dict[str, Any]]]:
        """Wait as long as an update takes, and publish; the figures by role."""
        tokens = {role: _tokens(plan, blocks) for role, plan in plans.items()}
        figures = self._wait(sum(tokens.values()))
        parcel, published = self._publish({})
        return parcel, {role: {**figures, "tokens": float(count), **published} for role, count in tokens.items()}

    def save(self, folder: str, meta: dict[str, Any]) -> None:
        """Write a checkpoint folder, aside and renamed."""
        aside = Path(f"{folder}.tmp-{os.getpid()}")
        aside.mkdir(parents=True, exist_ok=True)
        (aside / RECORD).write_text(json.dumps({**meta, "step": self.updates}), encoding="utf-8")
        os.rename(aside, folder)

    def load(self, folder: str) -> None:
        """Read a checkpoint folder back."""
        self.updates = int(read_record(Path(folder))["step"])

    def _wait(self, tokens: int) -> dict[str, Any]:
        started = time.perf_counter()
        time.sleep(tokens * self._token)
        self.updates += 1
        return {"loss": 0.0, "tokens": float(tokens), "busy": time.perf_counter() - started}


def _tokens(plan: BatchPlan, blocks: Sequence[list[Episode]]) -> int:
    """Tokens that a plan trains."""
    return sum(int(blocks[item.block][item.row].log.mask.sum()) for item in plan)
