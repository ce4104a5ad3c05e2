"""The figures of one update, summed over its micro-batches.

Owns how each is averaged: over the tokens that were computed. Promises that all of them describe the policy before the
update. Refuses to enter the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ssp.losses import Tokens


@dataclass
class Figures:
    """Running sums; `loss` is the whole batch's, already divided by its token count."""

    loss: float = 0.0
    tokens: int = 0
    ratio: float = 0.0
    ratio_max: float = 0.0
    clipped: float = 0.0
    entropy: float = 0.0
    mismatch: float = 0.0
    mismatch_max: float = 0.0
    kl: float | None = None

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
        # k3 of KL(sampler || trainer): samples come from the sampler, so w = trainer / sampler. In float64: the terms
        # cancel to ~1e-10 when the two agree as they should.
        self.mismatch += float((torch.expm1(log_ratio) - log_ratio).sum())
        self.mismatch_max = max(self.mismatch_max, float(log_ratio.abs().max()))

    def add_kl(self, divergence: Tensor) -> None:
        """Take in one micro-batch's summed KL to the reference."""
        self.kl = (self.kl or 0.0) + float(divergence.detach())

    def summary(self, total: int) -> dict[str, float]:
        """Means by metric name. `total`: the loss's token count, which the KL shares."""
        out = {
            "loss": self.loss,
            "ratio/mean": self.ratio / self.tokens,
            "ratio/max": self.ratio_max,
            "clip_fraction": self.clipped / self.tokens,
            "entropy": self.entropy / self.tokens,
            "logprob_mismatch/kl": self.mismatch / self.tokens,
            "logprob_mismatch/max": self.mismatch_max,
        }
        return out if self.kl is None else {**out, "kl": self.kl / total}
