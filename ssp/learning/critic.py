"""The value model of GAE: a copy of the start model with one linear value head, and its optimizer.

Owns values and their loss. Promises that the head sees only the positions at which a model token is about to be written,
so that no other position has a value or a gradient (law 1; Search-R1's critic trains on retrieved text), that values
start at exactly 0, and that a saved critic continues bit for bit. Refuses to know advantages and the policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ssp.config.role import CriticConfig, LearnerConfig
from ssp.errors import InvariantError
from ssp.learning import checkpoint
from ssp.learning.batch import Batch, lengths, micro_batches
from ssp.learning.figures import Figures
from ssp.learning.forward import states


class Critic:
    """Values of one role's states. `source`: the folder of the start model."""

    def __init__(self, source: Path, config: CriticConfig, learner: LearnerConfig) -> None:
        """InputError for a model folder that is missing or broken."""
        self._config, self._learner = config, learner
        model = checkpoint.load_model(source)
        head = nn.Linear(model.config.get_text_config().hidden_size, 1)
        for parameter in head.parameters():
            nn.init.zeros_(parameter)
        self.net = nn.ModuleDict({"body": model.base_model, "head": head})
        self._optimizer = torch.optim.AdamW(
            self.net.parameters(),
            lr=config.lr,
            betas=(learner.beta1, learner.beta2),
            weight_decay=learner.weight_decay,
            fused=False,
        )

    @torch.no_grad()
    def values(self, batch: Batch, trained: Tensor) -> Tensor:
        """float32 [N, T]: the value before each token that is true in `trained` [N, T], 0 elsewhere."""
        out = torch.zeros(trained.shape)
        rows = torch.nonzero(trained.any(dim=1)).squeeze(1)
        for part, mask in self._parts(trained, rows):
            here = torch.zeros(mask.shape)
            here[mask] = self._values(batch, part, mask)
            out[part, : mask.shape[1]] = here
        return out

    def step(self, batch: Batch, trained: Tensor, rows: Tensor, targets: Tensor, figures: Figures) -> None:
        """One optimizer step on `rows`: 0.5 mean over model tokens of max((V - G)², (clip(V, V_old ± c) - G)²).

        `targets` [N, T] is G = advantage + V_old, and V_old is `batch.values`. Source: the clipped value loss of PPO's
        code (Schulman et al. 2017), as verl computes it. InvariantError, with nothing changed, when loss or gradient is
        not finite.
        """
        rows = rows[trained[rows].any(dim=1)]
        total, whole, old = int(trained[rows].sum()), 0.0, batch.values
        if not total or old is None:
            return
        self._optimizer.zero_grad(set_to_none=True)
        clip = self._config.value_clip
        for part, mask in self._parts(trained, rows):
            length = mask.shape[1]
            value = self._values(batch, part, mask)
            before, target = old[part, :length][mask], targets[part, :length][mask]
            plain = (value - target).square()
            bounded = (before + (value - before).clamp(-clip, clip) - target).square()
            loss = 0.5 * torch.maximum(plain, bounded).sum() / total
            loss.backward()
            whole += loss.item()
            figures.add_values(value, bounded > plain)
        norm = float(torch.nn.utils.clip_grad_norm_(self.net.parameters(), self._learner.max_grad_norm))
        if not (math.isfinite(whole) and math.isfinite(norm)):
            self._optimizer.zero_grad(set_to_none=True)
            raise InvariantError(f"the critic's loss {whole} and gradient norm {norm} must be finite")
        self._optimizer.step()
        figures.value_loss += whole

    def state_dict(self) -> dict[str, Any]:
        """Weights and optimizer, for the checkpoint."""
        return {"net": self.net.state_dict(), "optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`. The learning rate stays the config's."""
        self.net.load_state_dict(state["net"])
        self._optimizer.load_state_dict(state["optimizer"])
        for group in self._optimizer.param_groups:
            group["lr"] = self._config.lr

    def _parts(self, trained: Tensor, rows: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Micro-batches of `rows`: (row indices, their part of `trained`)."""
        ends = lengths(trained)
        parts = micro_batches(ends, rows, self._learner.token_budget)
        return [(part, trained[part, : int(ends[part].max())]) for part in parts]

    def _values(self, batch: Batch, part: Tensor, mask: Tensor) -> Tensor:
        hidden = states(self.net["body"], batch.ids[part, : mask.shape[1]], mask)  # type: ignore[arg-type]
        out: Tensor = self.net["head"](hidden).squeeze(-1)
        return out
