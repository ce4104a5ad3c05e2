"""The figures of one update, summed over its micro-batches.

Owns how each is averaged: over the tokens that were computed; a loss and a norm over the optimizer steps. Promises that
all of them describe the policy before the optimizer step that they belong to. Refuses to enter the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ssp.losses import Tokens


@dataclass
class Figures:
    """Running sums. `loss`, `norm`, `value_loss`: one for each of `steps` optimizer steps, summed."""

    steps: int = 0
    loss: float = 0.0
    norm: float = 0.0
    tokens: int = 0
    ratio: float = 0.0
    ratio_max: float = 0.0
    clipped: float = 0.0
    entropy: float = 0.0
    compared: int = 0
    mismatch: float = 0.0
    mismatch_max: float = 0.0
    kl: float | None = None
    kl_tokens: int = 0
    value_loss: float = 0.0
    values: float = 0.0
    values_clipped: float = 0.0
    values_tokens: int = 0

    @torch.no_grad()
    def add(self, tokens: Tokens, clipped: Tensor, entropy: Tensor) -> None:
        """Take in one micro-batch: its tokens, which of them were clipped (bool [M]), their entropy (nats, [M])."""
        ratio = tokens.ratio()
        log_ratio = (tokens.logprobs - tokens.behaviour).double()
        self.tokens += ratio.numel()
        self.ratio += float(ratio.sum())
        self.ratio_max = max(self.ratio_max, float(ratio.max()))
        self.clipped += float(clipped.sum())
        self.entropy += float(entropy.sum())
        if self.steps:  # an earlier mini-batch has moved the policy, which is no mismatch of the two programs
            return
        # k3 of KL(sampler || trainer): samples come from the sampler, so w = trainer / sampler. In float64: the terms
        # cancel to ~1e-10 when the two agree as they should.
        self.compared += ratio.numel()
        self.mismatch += float((torch.expm1(log_ratio) - log_ratio).sum())
        self.mismatch_max = max(self.mismatch_max, float(log_ratio.abs().max()))

    def add_kl(self, divergence: Tensor) -> None:
        """Take in the KL to the reference of some tokens, [M]."""
        self.kl = (self.kl or 0.0) + float(divergence.detach().sum())
        self.kl_tokens += divergence.numel()

    def add_values(self, values: Tensor, clipped: Tensor) -> None:
        """Take in the critic's values of some tokens [M], and which of them moved too far."""
        self.values += float(values.detach().sum())
        self.values_clipped += float(clipped.sum())
        self.values_tokens += values.numel()

    def summary(self) -> dict[str, float]:
        """Means by metric name."""
        tokens, steps = max(self.tokens, 1), max(self.steps, 1)
        out = {
            "loss": self.loss / steps,
            "grad_norm": self.norm / steps,
            "ratio/mean": self.ratio / tokens,
            "ratio/max": self.ratio_max,
            "clip_fraction": self.clipped / tokens,
            "entropy": self.entropy / tokens,
            "logprob_mismatch/kl": self.mismatch / max(self.compared, 1),
            "logprob_mismatch/max": self.mismatch_max,
        }
        if self.kl is not None:
            out["kl"] = self.kl / max(self.kl_tokens, 1)
        if self.values_tokens:
            out["value/loss"] = self.value_loss / steps
            out["value/mean"] = self.values / self.values_tokens
            out["value/clip_fraction"] = self.values_clipped / self.values_tokens
        return out
