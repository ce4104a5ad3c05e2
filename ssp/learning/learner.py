"""One role's learner: a batch in, optimizer steps, figures out.

Owns the role's weights in training, its optimizer, its reference model (only with KL), its critic (only for estimators
that need one), its estimator and its step counter. Promises one optimizer step an update at most (a mini-batch, where
these are set), a gradient that does not depend on the micro-batch split, weights untouched by a step whose loss or
gradient is not finite, and a save/load/continue run that is bit for bit the uninterrupted one (law 7). Refuses to know
which algorithm or loss it runs, versions, games and Ray.

Weight of a token in the loss (`{role}.aggregate`): by all model tokens of all valid rows of the step, also of rows whose
advantage is 0 (those cost no compute without KL or entropy). Rows that must not count, such as groups without spread, are
dropped by the caller.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssp import algorithms, losses
from ssp.config.role import RoleConfig
from ssp.errors import InputError, InvariantError
from ssp.learning import checkpoint
from ssp.learning.batch import Batch, lengths, micro_batches, mini_batches
from ssp.learning.critic import Critic
from ssp.learning.divergence import Divergence
from ssp.learning.estimate import Estimate, estimate
from ssp.learning.figures import Figures
from ssp.learning.forward import score


class TorchLearner:
    """AdamW on a Hugging Face causal model, float32, on the CPU, on as many threads as torch is set to.

    `model_dir`: start checkpoint (its `ssp.json` names the protocol; without one `protocol` must), and, when
    `kl.coef` > 0, the reference of the KL term. `steps`: updates in all, for a schedule that falls.
    """

    def __init__(
        self,
        model_dir: str | Path,
        config: RoleConfig,
        protocol: str = "",
        steps: int = 0,
    ) -> None:
        """InputError: unknown algorithm, loss or KL name; a folder that is missing, broken or of another protocol."""
        self._source = Path(model_dir)
        self._config = config
        self.algorithm = algorithms.get(config.algorithm, config.gamma, config.lam)
        self._loss = losses.get(config.loss)
        self._options = losses.LossOptions(config.clip_low, config.clip_high, config.tis_cap, config.clip_dual)
        self.protocol = checkpoint.protocol_of(self._source, protocol)
        self.model = checkpoint.load_model(self._source)
        self.divergence = Divergence(config.kl, config.sampling.temperature)
        if config.kl.coef:
            self.divergence.adopt(checkpoint.load_model(self._source))
        self.critic = Critic(self._source, config.critic, config.learner) if self.algorithm.needs_values else None
        self._parameters = dict(self.model.named_parameters())
        learner = config.learner
        self._optimizer = torch.optim.AdamW(
            self._parameters.values(),
            lr=learner.lr,
            betas=(learner.beta1, learner.beta2),
            weight_decay=learner.weight_decay,
            fused=False,
        )
        self._steps = steps
        self.step = 0

    def update(self, batch: Batch) -> dict[str, float]:
        """Train on `batch`; the figures by their names in metrics.jsonl.

        A mini-batch without any signal (all advantages 0, no KL in the loss, no entropy bonus) is measured but makes no
        optimizer step; the step counter moves all the same. So does a batch without a model token of a valid row, of
        which there is nothing to measure. InvariantError: a loss or gradient that is not finite (weights, optimizer and
        counter are then as before, but for earlier mini-batches).
        """
        started = time.perf_counter()
        trained = batch.mask & batch.valid[:, None]
        if bool(trained[:, :1].any()):
            raise InvariantError("a row starts with a model token, which nothing predicts")
        figures, lr = Figures(), self._lr()
        batch, found = self._estimate(batch, trained, figures)
        for rows in mini_batches(batch.sources, self._config.learner.minibatch):
            if bool(trained[rows].any()):
                self._optimize(batch, found, trained, rows, figures, lr)
                if self.critic is not None and found.targets is not None:
                    self.critic.step(batch, trained, rows, found.targets, figures)
        self.step += 1
        summary = {**figures.summary(), **self.divergence.figures()}
        self.divergence.after(summary, int(batch.valid.sum()), self.model, self.step)
        return {
            **summary,
            "lr": lr,
            "tokens": float(trained.sum()),
            "advantage/mean_abs": float(found.advantages[trained].abs().mean()) if bool(trained.any()) else 0.0,
            "seconds": time.perf_counter() - started,
        }

    def _estimate(self, batch: Batch, trained: Tensor, figures: Figures) -> tuple[Batch, Estimate]:
        """Advantages by the policy, the critic and the reference as they are now."""
        if self.critic is not None:
            batch = replace(batch, values=self.critic.values(batch, trained))
        penalty = None
        if not self.divergence.in_loss:
            penalty = self.divergence.penalty(batch, trained, self._config.learner.token_budget, figures)
        return batch, estimate(self.algorithm, batch, penalty, self._config.kl.place)

    def _optimize(
        self, batch: Batch, found: Estimate, trained: Tensor, rows: Tensor, figures: Figures, lr: float
    ) -> None:
        """One optimizer step on `rows`; none where there is no signal, nor while the critic warms up."""
        rows = rows[trained[rows].any(dim=1)]
        everywhere = self.divergence.in_loss or self._config.entropy_coef > 0
        signal = rows if everywhere else rows[(found.advantages[rows] != 0).any(dim=1)]
        warming = self.critic is not None and self.step < self._config.critic.warmup_steps
        learns = len(signal) > 0 and not warming
        weights = self._weights(batch, trained, rows)
        self._optimizer.zero_grad(set_to_none=True)
        row_lengths, whole = lengths(trained), 0.0
        for part in micro_batches(row_lengths, signal if learns else rows, self._config.learner.token_budget):
            mask = trained[part, : int(row_lengths[part].max())]
            with torch.set_grad_enabled(learns):
                loss = self._part_loss(batch, found.advantages, part, mask, weights, figures)
            whole += loss.item()
            if learns:
                loss.backward()
        figures.steps += 1
        figures.loss += whole
        figures.norm += self._apply(whole, lr) if learns else 0.0

    def _part_loss(
        self, batch: Batch, advantages: Tensor, part: Tensor, mask: Tensor, weights: Tensor, figures: Figures
    ) -> Tensor:
        """Weighted loss of the rows `part`; `mask` [len(part), length] is true on their trained tokens."""
        length, coef = mask.shape[1], self._config.entropy_coef
        ids, behaviour = batch.ids[part, :length], batch.logprobs[part, :length][mask]
        versus = self.divergence.versus(behaviour) if self.divergence.in_loss else None
        scores = score(self.model, ids, mask, self._config.sampling.temperature, versus, coef > 0)
        rows = part[:, None].expand(-1, length)[mask]
        tokens = losses.Tokens(scores.logprobs, behaviour, advantages[part, :length][mask], rows)
        values, clipped = self._loss(tokens, self._options)
        figures.add(tokens, clipped, scores.entropy)
        if coef:
            values = values - coef * scores.entropy
        if versus is not None:
            figures.add_kl(scores.kl)
            values = values + self.divergence.coef * scores.kl
        return (values * weights[rows]).sum()

    def _weights(self, batch: Batch, trained: Tensor, rows: Tensor) -> Tensor:
        """float32 [N]: what a token of each row weighs in an optimizer step on `rows`; continuations as their episode."""
        sources = batch.sources
        counts = torch.zeros(len(batch), dtype=torch.long).index_add_(0, sources[rows], trained[rows].sum(dim=1))
        per_episode = losses.token_weights(counts, self._config.aggregate, self._config.limits.total_tokens)
        return per_episode[sources].float()

    def _lr(self) -> float:
        """Update k (from 1) of w runs at k/w of the rate, so the first one is not lost at rate 0; then constant, or the
        half cosine that would be 0 one update after the last."""
        learner, k = self._config.learner, self.step + 1
        peak = max(learner.warmup_steps, 1)
        if k < peak:
            return learner.lr * k / peak
        if learner.schedule == "constant":
            return learner.lr
        done = min((k - peak) / max(self._steps + 1 - peak, 1), 1.0)
        return learner.lr * 0.5 * (1.0 + math.cos(math.pi * done))

    def _apply(self, loss: float, lr: float) -> float:
        """Clip and step; the gradient's norm before clipping. InvariantError, with nothing changed, when not finite."""
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters.values(), self._config.learner.max_grad_norm))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self._optimizer.zero_grad(set_to_none=True)
            raise InvariantError(f"update {self.step + 1}: loss {loss} and gradient norm {norm} must be finite")
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()
        return norm

    def weights(self) -> dict[str, np.ndarray]:
        """Contiguous float32 copies by Hugging Face parameter name; a tied output embedding is not repeated."""
        return {
            name: p.detach().numpy().astype(np.float32, order="C", copy=True) for name, p in self._parameters.items()
        }

    def save(self, folder: str | Path, meta: Mapping[str, Any]) -> None:
        """Write a checkpoint (see `checkpoint.write`). `meta` (role, version, incarnation, ...: JSON data) goes to
        `ssp.json` beside protocol, step and estimator state; InvariantError when it contradicts them."""
        own = {
            "protocol": self.protocol,
            "step": self.step,
            "algorithm": {"name": self.algorithm.name, "state": self.algorithm.state_dict()},
            "kl_coef": self.divergence.coef,
        }
        for key, value in own.items():
            if key in meta and meta[key] != value:
                raise InvariantError(f"meta says {key}={meta[key]} but the learner has {value}")
        stored = checkpoint.Stored(
            self.model,
            self._optimizer.state_dict(),
            None if self.critic is None else self.critic.state_dict(),
            self.divergence.moving,
        )
        checkpoint.write(Path(folder), stored, {**meta, **own}, self._source)

    def load(self, folder: str | Path) -> dict[str, Any]:
        """Continue from a checkpoint; its `ssp.json`. The learning rate stays the config's.

        InputError, with nothing changed: a file missing or changed, another protocol, estimator or architecture.
        """
        moving = self.divergence.moving is not None
        stored, record = checkpoint.read(Path(folder), self.protocol, self.critic is not None, moving)
        algorithm = record["algorithm"]
        if algorithm.get("name") != self.algorithm.name:
            raise InputError(
                f"the checkpoint must be of algorithm {self.algorithm.name}",
                f"{folder} is of {algorithm.get('name')}",
                f"set algorithm={algorithm.get('name')}",
            )
        loaded = dict(stored.model.named_parameters())
        if {n: p.shape for n, p in loaded.items()} != {n: p.shape for n, p in self._parameters.items()}:
            raise InputError("the checkpoint must have the model's shapes", folder, f"use one made from {self._source}")
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(loaded[name])
        self._optimizer.load_state_dict(stored.optimizer)
        if self.critic is not None and stored.critic is not None:
            self.critic.load_state_dict(stored.critic)
        self.divergence.restore(stored.anchor, record.get("kl_coef"))
        self.algorithm.load_state_dict(algorithm.get("state", {}))
        self.step = record["step"]
        return record
