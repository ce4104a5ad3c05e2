"""How one role learns: everything between its batch and the loss of a micro-batch.

The gradient does not depend on the split into micro-batches and ranks; only model tokens of valid
rows have one (law 1).

Weight of a token in the loss (`{role}.aggregate`): by all model tokens of all valid rows of the
step, also of those whose advantage is 0 (no compute without KL or entropy). What must not count, as
groups without spread, the caller drops."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ssp.base.values import Values
from ssp.config.role import RoleConfig
from ssp.learning import algorithms, losses
from ssp.learning.algorithms.base import Algorithm
from ssp.learning.algorithms.tokens import over_tokens, token_rewards, whiten
from ssp.learning.backends.backend import Backend
from ssp.learning.backends.ranks import Ranks
from ssp.learning.batch import Batch, lengths, mini_batches
from ssp.learning.critic import Critic
from ssp.learning.divergence import Divergence
from ssp.learning.figures import Figures
from ssp.learning.memory import measured
from ssp.learning.rehearsal import Rehearsal


@dataclass
class Update:
    """One update of one role: its batch with advantages, and which tokens it trains (bool [N, T]).

    `proximal` float32 [N, T]: log-probs of the policy as it is when the update begins; None where
    it is still that one. `rehearsed`: figures of the traces that were learned beside the batch."""

    objective: Objective
    batch: Batch
    trained: Tensor
    figures: Figures
    lr: float
    proximal: Tensor | None = None
    rehearsed: Figures = field(default_factory=Figures)

    def __post_init__(self) -> None:
        self.ends = lengths(self.trained)
        assert self.batch.advantages is not None
        self.advantages = self.batch.advantages

    def parts(self) -> list[Tensor]:
        """Indices of the rows that each of its optimizer steps trains."""
        parts = mini_batches(self.batch.sources, self.objective.config.learner.minibatch)
        trained = [rows[self.trained[rows].any(dim=1)] for rows in parts]
        return [rows for rows in trained if len(rows)]


class Step(NamedTuple):
    """One optimizer step of an update on the rows in `part`: those in `rows` are computed, with a
    gradient where it `learns`; `weights` [N] of their tokens."""

    update: Update
    part: Tensor
    rows: Tensor
    learns: bool
    weights: Tensor

    @property
    def episodes(self) -> int:
        """How many episodes it trains; a continuation counts with its own."""
        return len(torch.unique(self.update.batch.sources[self.part]))


class Objective:
    """What one role is trained by. `source`: the folder of the start model; `steps`: updates in
    all, for a schedule that falls. `rehearsal`: what it learns again, None for nothing."""

    def __init__(self, config: RoleConfig, source: Path, ranks: Ranks, steps: int) -> None:
        """InputError: unknown algorithm, loss or KL name; a critic's model that cannot be read."""
        self.config = config
        self.algorithm = algorithms.get(config.algorithm, config.gamma, config.lam)
        self._steps = steps
        self._loss = losses.get(config.loss)
        self._options = losses.LossOptions(
            config.clip_low, config.clip_high, config.tis_cap, config.clip_dual
        )
        self._temperature = config.sampling.temperature
        self.divergence = Divergence(config.kl, self._temperature)
        self.rehearsal: Rehearsal | None = None
        self.critic = None
        if self.algorithm.needs_values:
            self.critic = Critic(source, config.critic, config.learner, ranks)

    def begin(self, batch: Batch, policy: Backend, step: int) -> Update:
        """Update number `step` on `batch`: advantages by policy, critic and reference as they are
        now."""
        trained = batch.mask & batch.valid[:, None]
        figures = Figures()
        if self.critic is not None:
            batch = replace(batch, values=self.critic.values(batch, trained))
        penalty = self.divergence.penalty(policy, batch, trained, figures)
        batch = estimate(self.algorithm, batch, penalty, self.config.kl.place)
        update = Update(self, batch, trained, figures, self.lr(step))
        corrects = self.config.correction.mask != "none"
        looks_back = corrects or losses.looks_back(self.config.loss)
        if looks_back and len(update.parts()) > 1:
            update.proximal = measured(trained, policy, batch.ids, self._temperature)
        return update

    def steps(self, update: Update, number: int) -> Iterator[Step]:
        """The optimizer steps of update `number`. One without signal (all advantages 0, nothing but
        the policy loss), or while the critic warms up, only measures."""
        config = self.config
        everywhere = self.divergence.in_loss or config.entropy_coef > 0 or config.llds_coef > 0
        warming = self.critic is not None and number <= config.critic.warmup_steps
        for part in update.parts():
            signal = part
            if not everywhere:
                signal = part[(update.advantages[part] != 0).any(dim=1)]
            learns = len(signal) > 0 and not warming
            weights = self.weights(update.batch, update.trained, part, number)
            yield Step(update, part, signal if learns else part, learns, weights)

    def loss(self, policy: Backend, step: Step, rows: Tensor, figures: Figures) -> Tensor:
        """Weighted loss of the micro-batch `rows`; `figures` takes note of it."""
        update = step.update
        config = self.config
        length = int(update.ends[rows].max())
        mask = update.trained[rows, :length]

        def at(values: Tensor) -> Tensor:
            return values[rows, :length][mask].to(policy.device)

        behaviour = at(update.batch.logprobs)
        weighted = behaviour if config.kl.weight else None
        against = (self.divergence.compare, weighted) if self.divergence.in_loss else ()
        logprobs, entropy, kl = policy(
            update.batch.ids[rows, :length],
            mask,
            self._temperature,
            *against,
            entropy_gradient=config.entropy_coef > 0,
        )
        proximal = logprobs.detach() if update.proximal is None else at(update.proximal)
        owners = rows[:, None].expand(-1, length)[mask]
        # Turns are numbered through the whole micro-batch.
        before = torch.nn.functional.pad(mask, (1, -1))
        turns = (mask & ~before).flatten().cumsum(0).view_as(mask)[mask]
        tokens = losses.Tokens(
            logprobs,
            behaviour,
            at(update.advantages),
            owners.to(policy.device),
            proximal,
            turns.to(policy.device),
        )
        values, clipped = self._loss(tokens, self._options)
        values, masked = losses.corrected(values, tokens, config.correction)
        corrects = config.correction.mask != "none"
        figures.add(tokens, clipped, entropy, masked if corrects else None)
        if config.entropy_coef:
            values = values - config.entropy_coef * entropy
        if config.llds_coef:
            values = values + config.llds_coef * losses.llds(tokens)
        if against:
            figures.add_kl(kl)
            values = values + self.divergence.coef * kl
        return (values * step.weights[owners].to(policy.device)).sum()

    def weights(self, batch: Batch, trained: Tensor, rows: Tensor, step: int) -> Tensor:
        """float32 [N]: what a token of each row weighs in an optimizer step on `rows`, in update
        `step`; a continuation counts as its episode."""
        sources = batch.sources
        counts = torch.zeros(len(batch), dtype=torch.long)
        counts.index_add_(0, sources[rows], trained[rows].sum(dim=1))
        length = self.config.limits.at(step).total_tokens
        weights = losses.token_weights(counts, self.config.aggregate, length)
        return weights[sources].float()

    def lr(self, step: int) -> float:
        """The learning rate of update `step` (from 1). Of w warm-up updates number k runs at k/w of
        the rate, so the first one is not lost at rate 0. Then the rate is constant, or the half
        cosine that would be 0 one update after the last."""
        learner = self.config.learner
        peak = max(learner.warmup_steps, 1)
        if step < peak:
            return learner.lr * step / peak
        if learner.schedule == "constant":
            return learner.lr
        done = min((step - peak) / max(self._steps + 1 - peak, 1), 1.0)
        return learner.lr * 0.5 * (1.0 + math.cos(math.pi * done))

    def finish(self, update: Update, policy: Backend, step: int) -> Values:
        """Let coefficient and anchor follow, once update `step` is done; its figures by their
        metric names."""
        update.figures.reduce(policy.ranks)
        summary = update.figures.summary()
        if self.rehearsal is not None:
            update.rehearsed.reduce(policy.ranks)
            update.figures.work += update.rehearsed.work
            summary |= self.rehearsal.summary(update.rehearsed)
        episodes = int(update.batch.episodes().valid.sum())
        self.divergence.after(summary, episodes, policy.local_tensors("model"), step)
        sizes = update.advantages[update.trained].abs()
        size = float(sizes.mean()) if len(sizes) else 0.0
        return {**summary, "lr": update.lr, "tokens": float(len(sizes)), "advantage/mean_abs": size}


def estimate(
    algorithm: Algorithm, batch: Batch, penalty: Tensor | None = None, place: str = "loss"
) -> Batch:
    """`batch` with advantages, and where there is a critic its targets. `penalty` [N, T]:
    coefficient times KL of each token, without gradient.

    `place` reward: r_t ← r_t - penalty_t before the estimate (InstructGPT, Ouyang et al. 2022);
    advantage: A_t ← A_t - penalty_t after it; future: A_t ← A_t - the sum of penalty_t and all
    later ones of the row (both EMA-PG's); loss: it is not looked at. An estimator with a critic is
    whitened over the batch's model tokens in between, as Search-R1 and verl do; its targets are
    not. Whitening counts each model token once, those of continuations too."""
    trained = batch.mask & batch.valid[:, None]
    if penalty is not None and place == "reward":
        batch = replace(batch, token_rewards=token_rewards(batch) - penalty)
    targets = None
    advantages = _advantages(algorithm, batch, trained)
    if algorithm.needs_values and batch.values is not None:
        targets = advantages + batch.values
        advantages = whiten(advantages, trained)
    if penalty is not None and place == "future":
        penalty = torch.where(trained, penalty, 0.0).flip(1).cumsum(1).flip(1)
    if penalty is not None and place in ("advantage", "future"):
        advantages = torch.where(trained, advantages - penalty, 0.0).float()
    return replace(batch, advantages=advantages, targets=targets)


def _advantages(algorithm: Algorithm, batch: Batch, trained: Tensor) -> Tensor:
    """float32 [N, T]: the credit of settled rows; of the others what the estimator makes of their
    tokens."""
    settled = batch.settled
    if batch.advantages is not None and settled is not None and bool(settled.all()):
        return batch.advantages
    if batch.source is None:
        advantages = algorithm.advantages(batch)
    else:
        first = batch.episodes()
        advantages = algorithm.advantages(first)
        # A continuation has the advantage of its episode's first model token.
        lead = first.mask.int().argmax(dim=1, keepdim=True)
        of_episode = advantages.gather(1, lead).squeeze(1)
        count = len(first)
        rest = over_tokens(of_episode[batch.source[count:]], batch.mask[count:])
        advantages = torch.cat([advantages, rest])
        if algorithm.whitens:  # anew: so far the continuations' tokens are in no mean
            advantages = whiten(advantages, trained)
    if settled is None or batch.advantages is None:
        return advantages
    return torch.where(settled[:, None], batch.advantages, advantages)
