"""One role's learner: a batch in, one optimizer step, figures out.

Owns the role's weights in training, its optimizer, its reference model (only with KL), its estimator and its step
counter. Promises one optimizer step an update at most, a gradient that does not depend on the micro-batch split,
weights untouched when a loss or a gradient is not finite, and a save/load/continue run that is bit for bit the
uninterrupted one (law 7). Refuses to know which algorithm or loss it runs, versions, games and Ray.

Denominator of the loss: all model tokens of all valid rows of the batch, also of rows whose advantage is 0 (those cost
no compute without KL). Rows that must not count, such as groups without spread, are dropped by the caller.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssp import algorithms, kl, losses
from ssp.config.schema import RoleConfig
from ssp.errors import InputError, InvariantError
from ssp.learning import checkpoint
from ssp.learning.batch import Batch, lengths, micro_batches
from ssp.learning.figures import Figures
from ssp.learning.forward import score


class TorchLearner:
    """AdamW on a Hugging Face causal model, float32, on the CPU, on as many threads as torch is set to.

    `model_dir`: start checkpoint (its `ssp.json` names the protocol; without one `protocol` must). `reference_dir`: the
    model of the KL term, read only when `kl.coef` > 0; None means `model_dir`.
    """

    def __init__(
        self, model_dir: str | Path, config: RoleConfig, reference_dir: str | Path | None = None, protocol: str = ""
    ) -> None:
        """InputError: unknown algorithm, loss or KL name; a folder that is missing, broken or of another protocol."""
        self._source = Path(model_dir)
        self._config = config
        self.algorithm = algorithms.get(config.algorithm)
        self._loss = losses.get(config.loss)
        self._options = losses.LossOptions(config.clip_low, config.clip_high, config.tis_cap)
        self._kl = kl.get(config.kl.kind)
        self.protocol = checkpoint.protocol_of(self._source, protocol)
        self.model = checkpoint.load_model(self._source)
        self._reference = None
        if config.kl.coef:
            reference = self._source if reference_dir is None else Path(reference_dir)
            checkpoint.protocol_of(reference, self.protocol)
            self._reference = checkpoint.load_model(reference).requires_grad_(False)
        self._parameters = dict(self.model.named_parameters())
        learner = config.learner
        self._optimizer = torch.optim.AdamW(
            self._parameters.values(),
            lr=learner.lr,
            betas=(learner.beta1, learner.beta2),
            weight_decay=learner.weight_decay,
            fused=False,
        )
        self.step = 0

    def update(self, batch: Batch) -> dict[str, float]:
        """One optimizer step on `batch`; the figures by their names in metrics.jsonl.

        A batch without any signal (all advantages 0, no KL) is measured but makes no optimizer step; the step counter
        moves all the same. InvariantError: no trainable token, or a loss or gradient that is not finite (weights,
        optimizer and counter are then as before).
        """
        started = time.perf_counter()
        trained = batch.mask & batch.valid[:, None]
        total = int(trained.sum())
        if not total:
            raise InvariantError("an update needs at least one model token of a valid row")
        if bool(trained[:, 0].any()):
            raise InvariantError("a row starts with a model token, which nothing predicts")
        advantages = self.algorithm.advantages(batch)
        has_tokens = trained.any(dim=1)
        signal = has_tokens if self._reference is not None else (advantages != 0).any(dim=1) & has_tokens
        learns = bool(signal.any())
        rows = torch.nonzero(signal if learns else has_tokens).squeeze(1)
        figures = Figures()
        self._optimizer.zero_grad(set_to_none=True)
        row_lengths = lengths(trained)
        for part in micro_batches(row_lengths, rows, self._config.learner.token_budget):
            length = int(row_lengths[part].max())
            with torch.set_grad_enabled(learns):
                loss = self._part_loss(batch, advantages, part, trained[part, :length], figures) / total
            figures.loss += loss.item()
            if learns:
                loss.backward()
        lr = self._lr()
        norm = self._apply(figures.loss, lr) if learns else 0.0
        self.step += 1
        return {
            **figures.summary(total),
            "grad_norm": norm,
            "lr": lr,
            "tokens": float(total),
            "advantage/mean_abs": float(advantages[trained].abs().mean()),
            "seconds": time.perf_counter() - started,
        }

    def _part_loss(self, batch: Batch, advantages: Tensor, part: Tensor, mask: Tensor, figures: Figures) -> Tensor:
        """Summed loss of the rows `part`; `mask` [len(part), length] is true on their trained tokens."""
        length = mask.shape[1]
        ids = batch.ids[part, :length]
        temperature = self._config.sampling.temperature
        scores = score(self.model, ids, mask, temperature)
        rows = part[:, None].expand(-1, length)[mask]
        tokens = losses.Tokens(
            scores.logprobs, batch.logprobs[part, :length][mask], advantages[part, :length][mask], rows
        )
        values, clipped = self._loss(tokens, self._options)
        figures.add(tokens, clipped, scores.entropy)
        loss = values.sum()
        if self._reference is not None:
            with torch.no_grad():
                reference = score(self._reference, ids, mask, temperature).logprobs
            divergence = self._kl(scores.logprobs, reference).sum()
            figures.add_kl(divergence)
            loss = loss + self._config.kl.coef * divergence
        return loss

    def _lr(self) -> float:
        """Linear warm-up: update k (from 1) of w runs at k/w of the rate, so the first one is not lost at rate 0."""
        warmup = self._config.learner.warmup_steps
        return self._config.learner.lr * (min(1.0, (self.step + 1) / warmup) if warmup > 0 else 1.0)

    def _apply(self, loss: float, lr: float) -> float:
        """Clip and step; the gradient's norm before clipping. InvariantError, with nothing changed, when not finite."""
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters.values(), self._config.learner.max_grad_norm))
        if not (np.isfinite(loss) and np.isfinite(norm)):
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
        }
        for key, value in own.items():
            if key in meta and meta[key] != value:
                raise InvariantError(f"meta says {key}={meta[key]} but the learner has {value}")
        checkpoint.write(Path(folder), self.model, self._optimizer.state_dict(), {**meta, **own}, self._source)

    def load(self, folder: str | Path) -> dict[str, Any]:
        """Continue from a checkpoint; its `ssp.json`. The learning rate stays the config's.

        InputError, with nothing changed: a file missing or changed, another protocol, estimator or architecture.
        """
        model, optimizer, record = checkpoint.read(Path(folder), self.protocol)
        stored = record["algorithm"]
        if stored.get("name") != self.algorithm.name:
            raise InputError(
                f"the checkpoint must be of algorithm {self.algorithm.name}",
                f"{folder} is of {stored.get('name')}",
                f"set algorithm={stored.get('name')}",
            )
        loaded = dict(model.named_parameters())
        if {n: p.shape for n, p in loaded.items()} != {n: p.shape for n, p in self._parameters.items()}:
            raise InputError("the checkpoint must have the model's shapes", folder, f"use one made from {self._source}")
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(loaded[name])
        self._optimizer.load_state_dict(optimizer)
        self.algorithm.load_state_dict(stored.get("state", {}))
        self.step = record["step"]
        return record
