"""How one role learns: everything between its batch and the loss of a micro-batch.

Owns the role's estimator, loss, KL, critic, learning rate and the weight of a token. Promises a gradient that does not
depend on the split into micro-batches and ranks, and none at any position but the model tokens of valid rows (law 1).
Refuses to know which algorithm or loss it runs, and who else trains the same weights.

Weight of a token in the loss (`{role}.aggregate`): by all model tokens of all valid rows of the step, also of rows whose
advantage is 0 (those cost no compute without KL or entropy). Rows that must not count, such as groups without spread, are
dropped by the caller.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ssp.base.errors import InvariantError
from ssp.config.role import RoleConfig
from ssp.learning import algorithms, losses
from ssp.learning.backends.backend import Backend
from ssp.learning.backends.ranks import SOLO, Ranks
from ssp.learning.batch import Batch, lengths, mini_batches
from ssp.learning.critic import Critic
from ssp.learning.divergence import Divergence
from ssp.learning.estimate import Estimate, estimate
from ssp.learning.figures import Figures
from ssp.learning.memory import Memory
from ssp.learning.pieces import Piece, measured, pieces
from ssp.learning.policy import scores


@dataclass
class Lesson:
    """One update of one role: its batch, advantages, and which tokens it trains (bool [N, T]).

    `proximal` float32 [N, T]: log-probs of the policy as it is when the update begins; None where it is still that one.
    """

    batch: Batch
    trained: Tensor
    found: Estimate
    proximal: Tensor | None
    figures: Figures
    lr: float

    def __post_init__(self) -> None:
        self.ends = lengths(self.trained)

    def parts(self, size: int) -> list[Tensor]:
        """Row indices of its optimizer steps."""
        parts = mini_batches(self.batch.sources, size)
        return [rows for rows in parts if bool(self.trained[rows].any())]


@dataclass(frozen=True)
class Turn:
    """A lesson's part of one optimizer step: of the rows in `part` those in `rows` are computed, with a gradient where it
    `learns`; `weights` [N] of their tokens."""

    school: School
    lesson: Lesson
    part: Tensor
    rows: Tensor
    learns: bool
    weights: Tensor

    def pieces(self, memory: Memory, ranks: Ranks) -> list[Piece]:
        """This rank's micro-batches."""
        return pieces(self.lesson.ends, self.rows, memory, ranks)


class School:
    """`source`: the folder of the start model; `steps`: updates in all, for a schedule that falls."""

    def __init__(self, config: RoleConfig, source: Path, memory: Memory, ranks: Ranks = SOLO, steps: int = 0) -> None:
        """InputError: unknown algorithm, loss or KL name; a critic's model that cannot be read."""
        self.config, self._memory, self._steps = config, memory, steps
        self.algorithm = algorithms.get(config.algorithm, config.gamma, config.lam, config.baseline)
        self._loss = losses.get(config.loss)
        self._options = losses.LossOptions(config.clip_low, config.clip_high, config.tis_cap, config.clip_dual)
        self.divergence = Divergence(config.kl, config.sampling.temperature)
        self.critic = None
        if self.algorithm.needs_values:
            self.critic = Critic(source, config.critic, config.learner, ranks, memory)

    def begin(self, batch: Batch, policy: Backend, step: int) -> Lesson:
        """The lesson of `batch` in update number `step`: advantages by policy, critic and reference as they are now.

        InvariantError: a row that starts with a model token.
        """
        trained = batch.mask & batch.valid[:, None]
        if bool(trained[:, :1].any()):
            raise InvariantError("a row starts with a model token, which nothing predicts")
        figures = Figures()
        if self.critic is not None:
            batch = replace(batch, values=self.critic.values(batch, trained))
        penalty = None
        if not self.divergence.in_loss:
            penalty = self.divergence.penalty(policy, batch, trained, self._memory, figures)
        found = estimate(self.algorithm, batch, penalty, self.config.kl.place)
        lesson = Lesson(batch, trained, found, None, figures, self.lr(step))
        if self._looks_back and len(lesson.parts(self.config.learner.minibatch)) > 1:
            lesson.proximal = self._proximal(batch, trained, policy)
        return lesson

    def turns(self, lesson: Lesson, step: int) -> Iterator[Turn]:
        """The optimizer steps of `lesson` in update number `step`.

        One without signal (all advantages 0, no KL in the loss, no entropy bonus), or while the critic warms up, only
        measures.
        """
        everywhere = self.divergence.in_loss or self.config.entropy_coef > 0
        warming = self.critic is not None and step <= self.config.critic.warmup_steps
        for part in lesson.parts(self.config.learner.minibatch):
            rows = part[lesson.trained[part].any(dim=1)]
            signal = rows if everywhere else rows[(lesson.found.advantages[rows] != 0).any(dim=1)]
            learns = len(signal) > 0 and not warming
            weights = self.weights(lesson.batch, lesson.trained, rows, step)
            yield Turn(self, lesson, rows, signal if learns else rows, learns, weights)

    def loss(self, policy: Backend, turn: Turn, rows: Tensor, figures: Figures) -> Tensor:
        """Weighted loss of the micro-batch `rows`; `figures` takes note of it."""
        lesson, coef = turn.lesson, self.config.entropy_coef
        length = int(lesson.ends[rows].max())
        mask = lesson.trained[rows, :length]

        def at(values: Tensor) -> Tensor:
            return values[rows, :length][mask].to(policy.device)

        behaviour = at(lesson.batch.logprobs)
        versus = self.divergence.versus(behaviour) if self.divergence.in_loss else None
        given: Any = policy(
            lesson.batch.ids[rows, :length], mask, self.config.sampling.temperature, versus, entropy_gradient=coef > 0
        )
        found = scores(given)
        owners = rows[:, None].expand(-1, length)[mask]
        proximal = found.logprobs.detach() if lesson.proximal is None else at(lesson.proximal)
        tokens = losses.Tokens(
            found.logprobs, behaviour, at(lesson.found.advantages), owners.to(policy.device), proximal
        )
        values, clipped = self._loss(tokens, self._options)
        values, masked = losses.corrected(values, tokens, self.config.correction)
        figures.add(tokens, clipped, found.entropy, None if self.config.correction.mask == "none" else masked)
        if coef:
            values = values - coef * found.entropy
        if versus is not None:
            figures.add_kl(found.kl)
            values = values + self.divergence.coef * found.kl
        return (values * turn.weights[owners].to(policy.device)).sum()

    def teach_critic(self, turn: Turn) -> None:
        """The critic's own optimizer step on the turn's rows, where there is a critic."""
        targets = turn.lesson.found.targets
        if self.critic is not None and targets is not None:
            self.critic.step(turn.lesson.batch, turn.lesson.trained, turn.part, targets, turn.lesson.figures)

    def weights(self, batch: Batch, trained: Tensor, rows: Tensor, step: int) -> Tensor:
        """float32 [N]: what a token of each row weighs in an optimizer step on `rows`, in update `step`; continuations as
        their episode."""
        sources = batch.sources
        counts = torch.zeros(len(batch), dtype=torch.long).index_add_(0, sources[rows], trained[rows].sum(dim=1))
        per_episode = losses.token_weights(counts, self.config.aggregate, self.config.limits.at(step).total_tokens)
        return per_episode[sources].float()

    def lr(self, step: int) -> float:
        """Of update `step` (from 1): of w warm-up updates number k runs at k/w of the rate, so the first one is not lost
        at rate 0; then constant, or the half cosine that would be 0 one update after the last."""
        learner = self.config.learner
        peak = max(learner.warmup_steps, 1)
        if step < peak:
            return learner.lr * step / peak
        if learner.schedule == "constant":
            return learner.lr
        done = min((step - peak) / max(self._steps + 1 - peak, 1), 1.0)
        return learner.lr * 0.5 * (1.0 + math.cos(math.pi * done))

    def finish(self, lesson: Lesson, policy: Backend, step: int) -> dict[str, float]:
        """Let coefficient and anchor follow, once update `step` is done; the lesson's figures by their metric names."""
        lesson.figures.reduce(policy.ranks)
        summary = {**lesson.figures.summary(), **self.divergence.figures()}
        self.divergence.after(summary, int(lesson.batch.valid.sum()), policy.local_tensors("model"), step)
        on = lesson.trained
        return {
            **summary,
            "lr": lesson.lr,
            "tokens": float(on.sum()),
            "advantage/mean_abs": float(lesson.found.advantages[on].abs().mean()) if bool(on.any()) else 0.0,
        }

    @property
    def _looks_back(self) -> bool:
        return losses.looks_back(self.config.loss) or self.config.correction.mask != "none"

    def _proximal(self, batch: Batch, trained: Tensor, policy: Backend) -> Tensor:
        def logprobs(rows: Tensor, mask: Tensor) -> Tensor:
            ids = batch.ids[rows, : mask.shape[1]]
            return scores(policy(ids, mask, self.config.sampling.temperature)).logprobs

        return measured(trained, self._memory, policy.ranks, logprobs, policy.local)
