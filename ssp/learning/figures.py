"""The figures of one update, summed over its micro-batches.

Owns how each is averaged: over the tokens that were computed; a loss and a norm over the optimizer steps. Promises that
all of them describe the policy before the optimizer step that they belong to, that every field is a sum, a count or a
`_max`, so that ranks can put theirs together, and one transfer from the device a micro-batch. Refuses to enter the
gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ssp.learning.backends.ranks import Ranks
from ssp.learning.losses import Tokens

OCTAVES = (-33, 7)
"""Powers of 2 between which sizes of log-ratios are told apart: 1e-10 (float32 noise is above) to 128 nats."""
PARTS = 8
"""Bins an octave: a quantile is right to a ninth."""


def _bins() -> Tensor:
    return torch.zeros((OCTAVES[1] - OCTAVES[0]) * PARTS, dtype=torch.float64)


@dataclass
class Figures:
    """Running sums. `loss`, `norm`, `value_loss`: one for each of `steps` optimizer steps, summed.

    `low`, `high`, `dual`: tokens that were clipped because their ratio was small; large, with an advantage of at least
    0; large, with a negative one. `masked`: tokens that a correction took out. `sizes`: how many log-ratios of trainer
    to sampler are of which size, by bins of `OCTAVES`. `work`: operations (`ssp.learning.flops`).
    """

    steps: int = 0
    loss: float = 0.0
    norm: float = 0.0
    tokens: int = 0
    ratio: float = 0.0
    ratio_squares: float = 0.0
    ratio_max: float = 0.0
    low: float = 0.0
    high: float = 0.0
    dual: float = 0.0
    masked: float | None = None
    entropy: float = 0.0
    nll: float = 0.0
    compared: int = 0
    mismatch: float = 0.0
    mismatch_max: float = 0.0
    sizes: Tensor = field(default_factory=_bins)
    kl: float | None = None
    kl_tokens: int = 0
    value_loss: float = 0.0
    values: float = 0.0
    values_clipped: float = 0.0
    values_tokens: int = 0
    work: float = 0.0

    @torch.no_grad()
    def add(self, tokens: Tokens, clipped: Tensor, entropy: Tensor, masked: Tensor | None = None) -> None:
        """Take in one micro-batch: its tokens, which of them were clipped (bool [M]), their entropy (nats, [M]), which
        of them a correction took out (bool [M], None: there is no correction)."""
        ratio = tokens.ratio().double()
        log_ratio = (tokens.logprobs - tokens.behaviour).double()
        large, gains = ratio >= 1, tokens.advantages >= 0
        # k3 of KL(sampler || trainer): samples come from the sampler, so w = trainer / sampler. In float64: the terms
        # cancel to ~1e-10 when the two agree as they should.
        found = {
            "ratio": ratio.sum(),
            "ratio_squares": (ratio * ratio).sum(),
            "ratio_max": ratio.max(),
            "low": (clipped & ~large).sum(),
            "high": (clipped & large & gains).sum(),
            "dual": (clipped & large & ~gains).sum(),
            **({} if masked is None else {"masked": masked.sum()}),
            "entropy": entropy.sum(),
            "nll": -tokens.logprobs.sum(),
            "mismatch": (torch.expm1(log_ratio) - log_ratio).sum(),
            "mismatch_max": log_ratio.abs().max(),
        }
        values = torch.stack([value.double() for value in found.values()]).tolist()
        for name, value in zip(found, values, strict=True):
            if self.steps and name.startswith("mismatch"):
                continue  # an earlier mini-batch has moved the policy, which is no mismatch of the two programs
            old = getattr(self, name) or 0.0
            setattr(self, name, max(old, value) if name.endswith("_max") else old + value)
        self.tokens += ratio.numel()
        if self.steps:
            return
        self.compared += ratio.numel()
        place = (log_ratio.abs().log2() - OCTAVES[0]) * PARTS
        place = place.nan_to_num(nan=len(self.sizes)).clamp(0, len(self.sizes) - 1).long()
        self.sizes += torch.bincount(place, minlength=len(self.sizes)).cpu()

    def add_kl(self, divergence: Tensor) -> None:
        """Take in the KL to the reference of some tokens, [M]."""
        self.kl = (self.kl or 0.0) + float(divergence.detach().sum())
        self.kl_tokens += divergence.numel()

    def add_values(self, values: Tensor, clipped: Tensor) -> None:
        """Take in the critic's values of some tokens [M], and which of them moved too far."""
        self.values += float(values.detach().sum())
        self.values_clipped += float(clipped.sum())
        self.values_tokens += values.numel()

    def reduce(self, ranks: Ranks) -> None:
        """Put together what the ranks computed, on all of them; `loss`, `norm`, `value_loss` and `steps` are of the whole
        optimizer step already, so every rank knows them."""
        if ranks.world == 1:
            return
        ours = vars(self)
        names = [name for name in ours if name not in ("loss", "norm", "value_loss", "steps", "sizes")]
        largest = [name for name in names if name.endswith("_max")]
        ours.update(zip(largest, ranks.most([ours[name] for name in largest]), strict=True))
        summed = [name for name in names if name not in largest]
        given = ranks.total([float(ours[name] is not None) for name in summed])
        totals = ranks.total([ours[name] or 0.0 for name in summed])
        for name, present, value in zip(summed, given, totals, strict=True):
            ours[name] = int(value) if isinstance(ours[name], int) else value if present else None
        ranks.sum_([self.sizes])

    def quantile(self, share: float) -> float:
        """The size of log-ratio, nats, that `share` of the tokens do not exceed: its bin's upper end, 0 for the lowest."""
        if not self.compared:
            return 0.0
        reached = self.sizes.cumsum(0) >= share * self.compared
        place = int(reached.int().argmax())
        return 2.0 ** (OCTAVES[0] + (place + 1) / PARTS) if place else 0.0

    def summary(self) -> dict[str, float]:
        """Means by metric name. `ratio/samples` is the effective sample size (sum w)^2 / sum w^2 (Kong 1992) as a share
        of the tokens, w their ratios."""
        tokens, steps = max(self.tokens, 1), max(self.steps, 1)
        out = {
            "loss": self.loss / steps,
            "grad_norm": self.norm / steps,
            "ratio/mean": self.ratio / tokens,
            "ratio/max": self.ratio_max,
            "ratio/samples": self.ratio**2 / (tokens * self.ratio_squares) if self.tokens else 1.0,
            "clip_fraction": (self.low + self.high + self.dual) / tokens,
            "clip_fraction/low": self.low / tokens,
            "clip_fraction/high": self.high / tokens,
            "clip_fraction/dual": self.dual / tokens,
            "entropy": self.entropy / tokens,
            "nll": self.nll / tokens,
            "logprob_mismatch/kl": self.mismatch / max(self.compared, 1),
            "logprob_mismatch/p99": min(self.quantile(0.99), self.mismatch_max),
            "logprob_mismatch/max": self.mismatch_max,
        }
        if self.masked is not None:
            out["correction/masked"] = self.masked / tokens
        if self.kl is not None:
            out["kl"] = self.kl / max(self.kl_tokens, 1)
        if self.values_tokens:
            out["value/loss"] = self.value_loss / steps
            out["value/mean"] = self.values / self.values_tokens
            out["value/clip_fraction"] = self.values_clipped / self.values_tokens
        return out
