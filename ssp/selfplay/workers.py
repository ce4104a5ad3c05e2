"""The learner of one role as a worker: episodes in, new weights out.

Owns the model that is trained. Refuses to know rewards' origin, versions or other workers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ssp import protocols
from ssp.config.schema import Config
from ssp.episode import Episode, Outcome
from ssp.errors import InvariantError
from ssp.selfplay.publishing import Publisher
from ssp.transfer.parcel import Parcel, Weights

if TYPE_CHECKING:
    from ssp.learning.batch import Batch

Plan = list[tuple[int, int, float, int]]
"""Episodes of a batch, in order: (block, row in it, reward, group)."""


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

    def update(self, plan: Plan, *blocks: list[Episode]) -> tuple[Parcel, dict[str, float]]:
        """`learn`, and publish."""
        return self._publish(self.learn(plan, *blocks))

    def learn(self, plan: Plan, *blocks: list[Episode]) -> dict[str, float]:
        """One learner step on `plan`; its figures. InvariantError for an episode that a fault voided in play."""
        started = time.perf_counter()
        stats = self._inner.update({self._role: _batch(plan, blocks)})[self._role]
        stats["busy"] = time.perf_counter() - started
        return stats

    def measure(self, plan: Plan, *blocks: list[Episode]) -> dict[str, float]:
        """The figures of `plan` without a step."""
        return self._inner.measure({self._role: _batch(plan, blocks)})[self._role]

    def save(self, folder: str, meta: dict[str, Any]) -> None:
        """Write a checkpoint folder (Hugging Face layout and optimizer), aside and renamed."""
        self._inner.save(Path(folder), meta)

    def export(self, folder: str, meta: dict[str, Any]) -> None:
        """Write the policy alone, as a model folder that a run can start from."""
        self._inner.export(Path(folder), meta)

    def load(self, folder: str) -> None:
        """Read a checkpoint folder back: weights, optimizer, algorithm state."""
        self._inner.load(Path(folder))


def _batch(plan: Plan, blocks: Sequence[list[Episode]]) -> Batch:
    from ssp.learning.batch import collate

    chosen = [_scored(blocks[block][row]) for block, row, _, _ in plan]
    return collate(chosen, [reward for _, _, reward, _ in plan], [group for _, _, _, group in plan])


def _scored(episode: Episode) -> Episode:
    """The episode as a learner wants it. The block was made before grading; the coordinator knows the outcome since."""
    if episode.outcome is Outcome.VOID:
        raise InvariantError(f"episode {episode.id} is void ({episode.cause}) and may not be trained")
    return replace(episode, outcome=Outcome.SCORED)
