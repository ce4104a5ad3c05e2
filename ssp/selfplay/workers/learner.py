"""The learner as a worker: episodes in, new weights out. Where it has several ranks, each gets the
same calls, and rank 0 publishes."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file

from ssp.base.episode import Episode, Outcome
from ssp.base.errors import InvariantError
from ssp.base.imports import uncollected, unlisted, without
from ssp.base.values import Values
from ssp.config.crews import learners
from ssp.config.schema import Config
from ssp.game import protocols
from ssp.learning.scored import Scored
from ssp.record.manifest import read_record, seal
from ssp.selfplay.transfer.parcel import Parcel, Weights
from ssp.selfplay.transfer.publisher import Publisher
from ssp.selfplay.workers import lessons

if TYPE_CHECKING:
    from ssp.learning.backends.ranks import Ranks
    from ssp.learning.batch import Batch


NEEDLESS = ("scipy", "sklearn")
"""What the model library would take along, for detectors in pictures and for metrics of drafts."""


class Learner(Publisher):
    """Trains the policy of `role`, and of the roles that share it. The KL reference is the start
    model `model_dir`. `ranks`: the other ranks that make every call that computes, None for none."""

    def __init__(self, cfg: Config, role: str, model_dir: Path, ranks: Ranks | None = None) -> None:
        # Once the library has looked what is installed, it imports that.
        needless = () if "transformers" in sys.modules else NEEDLESS
        with without(*needless), uncollected(), unlisted():
            from ssp.learning import learner  # costs what players start without
        from ssp.learning.backends.ranks import SOLO
        from ssp.learning.rehearsal import Rehearsal

        self._role, self._ranks = role, ranks or SOLO
        blocks = {name: cfg.block(name) for name in learners(cfg)[role]}
        protocol = protocols.get(cfg.protocol).id
        self._adapter = cfg.placement.layout == "shared-base"  # its players have the base already
        last = max(min(cfg.steps, block.freeze_after or cfg.steps) for block in blocks.values())
        others = [cfg.block(other) for other in cfg.roles if other not in blocks]
        late = max((other.warmup_steps for other in others), default=0)
        start, steps = Path(model_dir), last - late
        self._inner = learner.PolicyLearner(start, blocks, protocol, steps, self._ranks)
        for name, block in blocks.items():
            if lessons.rehearses(cfg, name):
                again = Rehearsal(block, lessons.read(cfg, name, start), name, cfg.seed)
                self._inner.objectives[name].rehearsal = again

    def exported(self) -> Weights:
        """Current weights under Hugging Face names (numpy, float32); on a shared base the
        adapter's, under peft's."""
        return self._inner.adapter() if self._adapter else self._inner.weights()

    def anchor_weights(self) -> tuple[Parcel, Values]:
        """The weights of the KL reference, for an evaluation; they count as no publication."""
        return Parcel(self._inner.anchor_weights()), {}

    def update(
        self, samples: Mapping[str, Sequence[Scored]], names: Sequence[str], *blocks: list[Episode]
    ) -> tuple[Parcel, dict[str, Values]]:
        """One step of the roles of `samples`, which share this policy, and publish; the figures by
        role."""
        stats = self._learn({role: _batch(mine, names, blocks) for role, mine in samples.items()})
        parcel, figures = self.weights()
        return parcel, {role: mine | figures for role, mine in stats.items()}

    def learn(
        self, samples: Sequence[Scored], names: Sequence[str], *blocks: list[Episode]
    ) -> Values:
        """One learner step on `samples`; its figures. InvariantError for an episode that a fault
        voided in play."""
        return self._learn({self._role: _batch(samples, names, blocks)})[self._role]

    def measure(
        self, samples: Sequence[Scored], names: Sequence[str], *blocks: list[Episode]
    ) -> Values:
        """The figures of `samples` without a step."""
        return self._inner.measure({self._role: _batch(samples, names, blocks)})[self._role]

    def weights(self) -> tuple[Any, Values]:
        """See `Publisher.weights`."""
        weights = self.exported()  # which all ranks do together
        return self.pack(weights) if self._ranks.rank == 0 else ({}, {})

    def again(self, serial: int) -> tuple[Any, Values]:
        """See `Publisher.again`."""
        if self._ranks.rank == 0:
            return super().again(serial)
        self.exported()  # which all ranks do together
        return {}, {}

    def save(self, folder: str, meta: dict[str, Any]) -> None:
        """Write a checkpoint folder (Hugging Face layout and optimizer), aside and renamed."""
        self._inner.save(Path(folder), meta)

    def export(self, folder: str, meta: dict[str, Any]) -> None:
        """Write the policy alone, as a model folder that a run can start from."""
        self._inner.export(Path(folder), meta)

    def load(self, folder: str) -> None:
        """Read a checkpoint folder back: weights, optimizer, algorithm state."""
        self._inner.load(Path(folder))

    def _learn(self, batches: Mapping[str, Batch]) -> dict[str, Values]:
        started = time.perf_counter()
        stats = self._inner.update(batches)
        # what follows, a publication or an engine's turn, finds the gradients' memory free
        self._inner.backend.zero()
        for objective in self._inner.objectives.values():
            if objective.critic is not None:
                objective.critic.backend.zero()
        for figures in stats.values():
            figures["busy"] = time.perf_counter() - started
        return stats


class SimulatedLearner(Publisher):
    """Learns nothing, in the time that learning would take; the number of its updates is its only
    weight."""

    def __init__(self, cfg: Config, role: str, model_dir: Path) -> None:
        learner = cfg.block(role).learner
        self._token = learner.token_ms / 1e3 / learner.ranks
        self.updates = 0

    def exported(self) -> Weights:
        """The number of updates."""
        return {"updates": np.array([self.updates], np.float32)}

    def anchor_weights(self) -> tuple[Parcel, Values]:
        """The weights of the reference: there is none, so the same."""
        return Parcel(self.exported()), {}

    def update(
        self, samples: Mapping[str, Sequence[Scored]], names: Sequence[str], *blocks: list[Episode]
    ) -> tuple[Parcel, dict[str, dict[str, Any]]]:
        """Wait as long as an update takes, and publish; the figures by role."""
        started = time.perf_counter()
        tokens = {}
        for role, mine in samples.items():
            chosen = _episodes(mine, names, blocks)
            tokens[role] = float(sum(int(episode.log.mask.sum()) for episode in chosen))
        time.sleep(sum(tokens.values()) * self._token)
        self.updates += 1
        parcel, figures = self.weights()
        figures |= {"loss": 0.0, "busy": time.perf_counter() - started}
        return parcel, {role: {**figures, "tokens": count} for role, count in tokens.items()}

    def save(self, folder: str, meta: dict[str, Any]) -> None:
        """Write a checkpoint folder, aside and renamed."""
        self.export(folder, {**meta, "step": self.updates})

    def export(self, folder: str, meta: dict[str, Any]) -> None:
        """Write the weights alone into a folder, aside and renamed, with `meta` as its
        `ssp.json`."""
        aside = Path(f"{folder}.tmp-{os.getpid()}")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        save_file(self.exported(), aside / "model.safetensors")
        seal(aside, meta)
        os.rename(aside, folder)

    def load(self, folder: str) -> None:
        """Read a checkpoint folder back."""
        self.updates = int(read_record(Path(folder))["step"])


def _episodes(
    samples: Sequence[Scored], names: Sequence[str], blocks: Sequence[list[Episode]]
) -> list[Episode]:
    """The episodes of the samples, out of the blocks of these names."""
    by_name = dict(zip(names, blocks, strict=True))
    return [by_name[sample.block][sample.row] for sample in samples]


def _batch(
    samples: Sequence[Scored], names: Sequence[str], blocks: Sequence[list[Episode]]
) -> Batch:
    """The batch that the learner trains on."""
    from ssp.learning.batch import of_samples

    scored = []
    for episode in _episodes(samples, names, blocks):
        if episode.outcome is Outcome.VOID:
            said = f"episode {episode.id} is void ({episode.cause}) and may not be trained"
            raise InvariantError(said)
        # A block was made before grading; the coordinator knows the outcome since.
        scored.append(replace(episode, outcome=Outcome.SCORED))
    return of_samples(scored, samples)
