"""A learner: batches in, optimizer steps, figures out.

Owns the weights in training, by way of a backend, the schools of the roles that train them, and the step counter.
Promises one optimizer step an update at most (a mini-batch, where these are set), a gradient that does not depend on the
split into micro-batches and ranks, weights untouched by a step whose loss or gradient is not finite, and a
save/load/continue run that is bit for bit the uninterrupted one (law 7). Refuses to know which algorithm or loss it runs,
versions, games and Ray.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ssp.base.errors import InvariantError
from ssp.config.role import RoleConfig
from ssp.learning import checkpoint, store
from ssp.learning.backends import backend
from ssp.learning.backends.ranks import SOLO, Ranks
from ssp.learning.batch import Batch
from ssp.learning.figures import Figures
from ssp.learning.flops import Work, matrix_rate
from ssp.learning.memory import Memory
from ssp.learning.packing import enable_packing
from ssp.learning.policy import Policy, checkpoint_layers
from ssp.learning.school import Lesson, School, Turn
from ssp.record.manifest import protocol_of


class Learner:
    """One policy, a Hugging Face causal model, trained by one role, or by two that share it.

    `model_dir`: start checkpoint (its `ssp.json` names the protocol; without one `protocol` must), and, when a role's
    `kl.coef` > 0, the reference of the KL term. `roles`: the block of each role, in the order of their steps; roles that
    share have the same `learner` block. `steps`: updates in all, for a schedule that falls. `ranks`: the processes that
    make every call together, each with the same arguments; rank 0 gives weights and writes files.
    """

    def __init__(
        self,
        model_dir: str | Path,
        roles: Mapping[str, RoleConfig],
        protocol: str = "",
        steps: int = 0,
        ranks: Ranks = SOLO,
    ) -> None:
        """InputError: unknown algorithm, loss or KL name; a folder that is missing, broken or of another protocol."""
        self.source, self.ranks = Path(model_dir), ranks
        self.config = next(iter(roles.values())).learner
        self.protocol = protocol_of(self.source, protocol)
        self.memory = Memory(self.config.token_budget, packing=self.config.packing)
        self.schools = {role: School(config, self.source, self.memory, ranks, steps) for role, config in roles.items()}
        held = [school for school in self.schools.values() if school.config.kl.coef]
        self.policy = _policy(self.source, self.config, bool(held))
        self.work = Work.of(self.policy.model)
        self.backend = backend.make(self.policy, self.config, self.config.lr, ranks)
        kind = torch.bfloat16 if self.config.dtype == "bfloat16" else torch.float32
        self.rate = ranks.world * matrix_rate(str(self.backend.device), kind)
        for school in held:
            moves = school.config.kl.ema_tau < 1
            school.divergence.adopt(self.policy.held_to, self.backend.local_tensors("reference") if moves else ())
        self.step = 0

    def update(self, batches: Mapping[str, Batch]) -> dict[str, dict[str, float]]:
        """Train on each role's batch; the figures of each by their names in metrics.jsonl.

        Roles that share take their optimizer steps one after the other, or, with `learner.combine`, together, on the sum
        of their gradients. A mini-batch without any signal is measured but makes no optimizer step; the step counter
        moves all the same. So does a batch without a model token of a valid row, of which there is nothing to measure.
        InvariantError: a loss or gradient that is not finite (weights, optimizer and counter are then as before, but for
        earlier mini-batches). OutOfMemory: see `ssp.learning.memory`.
        """
        started = time.perf_counter()
        names = [role for role in self.schools if role in batches]
        lessons: dict[str, Lesson] = {}
        for group in [names] if self.config.combine else [[name] for name in names]:
            for role in group:
                lessons[role] = self.schools[role].begin(batches[role], self.backend, self.step + 1)
            turns = [self.schools[role].turns(lessons[role], self.step + 1) for role in group]
            for together in zip_longest(*turns):
                self._optimize([turn for turn in together if turn is not None])
        self.step += 1
        figures = {role: self.schools[role].finish(lesson, self.backend, self.step) for role, lesson in lessons.items()}
        for role, found in figures.items():
            found["seconds"] = time.perf_counter() - started
            found["mfu"] = lessons[role].figures.work / (found["seconds"] * self.rate)
            if self.memory.halved:
                found["token_budget"] = float(self.memory.tokens)
        return figures

    def measure(self, batches: Mapping[str, Batch]) -> dict[str, dict[str, float]]:
        """The figures that `update` would give of each role's batch, without learning: nothing changes."""
        found: dict[str, dict[str, float]] = {}
        for role, batch in batches.items():
            lesson = self.schools[role].begin(batch, self.backend, self.step + 1)
            for turn in self.schools[role].turns(lesson, self.step + 1):
                ((_, lesson.figures),) = self._gradient([replace(turn, rows=turn.part, learns=False)])
            lesson.figures.reduce(self.ranks)
            found[role] = {**lesson.figures.summary(), "tokens": float(lesson.trained.sum())}
        return found

    def _optimize(self, turns: list[Turn]) -> None:
        """One optimizer step of the policy on `turns`, where they have signal; and one of each critic."""

        def attempt() -> list[tuple[float, Figures]]:
            return self._gradient(turns)

        found = self.memory.within(attempt, self.backend.zero, self.backend.local)
        losses = self.ranks.total([loss for loss, _ in found])
        learning = [loss for turn, loss in zip(turns, losses, strict=True) if turn.learns]
        norm = self._apply(sum(learning), turns[0].lesson.lr) if learning else 0.0
        for turn, loss, (_, figures) in zip(turns, losses, found, strict=True):
            figures.steps += 1
            figures.loss += loss
            figures.norm += norm if turn.learns else 0.0
            turn.lesson.figures = figures
            turn.school.teach_critic(turn)

    def _gradient(self, turns: list[Turn]) -> list[tuple[float, Figures]]:
        """This rank's loss of each turn and the lesson's figures, filled on; the gradient is left in the backend."""
        self.backend.zero()
        out = []
        work = [turn.pieces(self.memory, self.ranks) for turn in turns]
        left = sum(len(parts) for turn, parts in zip(turns, work, strict=True) if turn.learns)
        for turn, parts in zip(turns, work, strict=True):
            whole, figures = 0.0, copy.deepcopy(turn.lesson.figures)
            for piece in parts:
                with torch.set_grad_enabled(turn.learns):
                    loss = turn.school.loss(self.backend, turn, piece.rows, figures if piece.counts else Figures())
                if piece.counts:
                    whole += loss.item()
                    rows = turn.lesson.ends[piece.rows].tolist()
                    figures.work += self.work.operations(rows, int(turn.lesson.trained[piece.rows].sum()), turn.learns)
                if turn.learns:
                    left -= 1
                    self.backend.backward(loss if piece.counts else 0.0 * loss, last=left == 0)
            out.append((whole, figures))
        return out

    def _apply(self, loss: float, lr: float) -> float:
        """Clip and step; the gradient's norm before clipping. InvariantError, with nothing changed, when not finite."""
        norm = self.backend.step(lr) if math.isfinite(loss) else math.nan
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self.backend.zero()
            raise InvariantError(f"update {self.step + 1}: loss {loss} and gradient norm {norm} must be finite")
        return norm

    def weights(self) -> dict[str, np.ndarray]:
        """Contiguous float32 copies by Hugging Face parameter name; a tied output embedding is not repeated. Adapters are
        merged. Empty on other ranks than 0."""
        return _arrays(store.weights(self.policy, self.backend))

    def adapter(self) -> dict[str, np.ndarray]:
        """Copies of the adapter's tensors by peft's names, float32. Empty on other ranks than 0."""
        from ssp.learning import lora

        found = lora.adapter(self.policy.model, self.backend.whole)
        return _arrays(found) if self.ranks.rank == 0 else {}

    def anchor_weights(self) -> dict[str, np.ndarray]:
        """The same of the reference that the KL is measured to. InvariantError where it has no weights of its own."""
        return _arrays(store.anchor(self.policy, self.backend))

    def save(self, folder: str | Path, meta: Mapping[str, Any]) -> None:
        """Write a checkpoint (see `ssp.learning.store`). `meta` (role, version, incarnation, ...: JSON data) goes to
        `ssp.json` beside protocol, step and estimator state; InvariantError when it contradicts them."""
        store.save(self, Path(folder), meta)

    def export(self, folder: str | Path, meta: Mapping[str, Any]) -> None:
        """Write the policy alone as a model folder that a run can start from."""
        store.export(self, Path(folder), meta)

    def load(self, folder: str | Path) -> dict[str, Any]:
        """Continue from a checkpoint; its `ssp.json`. The learning rate stays the config's.

        InputError, with nothing changed: a file missing or changed, another protocol, estimator, architecture or layout.
        """
        return store.load(self, Path(folder))


def _arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy().astype(np.float32, order="C", copy=True) for name, tensor in tensors.items()}


def _policy(source: Path, config: Any, held: bool) -> Policy:
    """The model of `source` as `config` has it trained, with what it is `held` to."""
    model = checkpoint.load_model(source)
    reference: Any = None
    if config.lora.rank:
        # Here, because peft takes a second to import.
        from ssp.learning import lora

        lora.put_on(model, config.lora)
        reference = lora.Bare(model) if held else None
    elif held:
        reference = checkpoint.load_model(source).requires_grad_(False)
    if config.packing:
        enable_packing(model)
        if held and not config.lora.rank:  # `lora.Bare` is the same model
            enable_packing(reference)
    if config.checkpointing:
        checkpoint_layers(model)
    return Policy(model, reference)
