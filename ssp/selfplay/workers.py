"""The learner of one role as a worker: episodes in, new weights out.

Owns the model that is trained. Refuses to know rewards' origin, versions or other workers.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from ssp import protocols
from ssp.config.schema import Config
from ssp.episode import Episode, Outcome
from ssp.errors import InvariantError
from ssp.selfplay.publishing import Publisher
from ssp.transfer.parcel import Parcel, Weights


class Learner(Publisher):
    """One role's learner: episodes in, new weights out. The KL reference is the start model `model_dir`."""

    def __init__(self, cfg: Config, role: str, model_dir: Path) -> None:
        # Here, because players and judges use this module too and should start without transformers' models.
        from ssp.learning import learner

        self._role, self._model_dir, block = role, Path(model_dir), cfg.block(role)
        self._temperature = block.sampling.temperature
        protocol = protocols.get(cfg.protocol).id
        self._inner = learner.Learner(Path(model_dir), {role: block}, protocol=protocol, steps=cfg.steps)

    def exported(self) -> Weights:
        """Current weights under Hugging Face names (numpy, float32)."""
        return self._inner.weights()

    def nbytes(self) -> int:
        """Bytes of the start model's files."""
        return sum(file.stat().st_size for file in self._model_dir.glob("*.safetensors"))

    def update(
        self, plan: list[tuple[int, int, float, int]], *blocks: list[Episode]
    ) -> tuple[Parcel, dict[str, float]]:
        """One learner step on `plan`: (block, row, reward, group) an episode, in batch order.

        InvariantError for an episode that a fault voided while it was played.
        """
        from ssp.learning.batch import collate

        started = time.perf_counter()
        chosen = [_scored(blocks[block][row]) for block, row, _, _ in plan]
        batch = collate(chosen, [reward for _, _, reward, _ in plan], [group for _, _, _, group in plan])
        stats = self._inner.update({self._role: batch})[self._role]
        stats["busy"] = time.perf_counter() - started
        return self._publish(stats)

    def save(self, folder: str, meta: dict[str, Any]) -> None:
        """Write a checkpoint folder (Hugging Face layout and optimizer), aside and renamed."""
        self._inner.save(Path(folder), meta)

    def load(self, folder: str) -> None:
        """Read a checkpoint folder back: weights, optimizer, algorithm state."""
        self._inner.load(Path(folder))


def _scored(episode: Episode) -> Episode:
    """The episode as a learner wants it. The block was made before grading; the coordinator knows the outcome since."""
    if episode.outcome is Outcome.VOID:
        raise InvariantError(f"episode {episode.id} is void ({episode.cause}) and may not be trained")
    return replace(episode, outcome=Outcome.SCORED)
