"""Policy losses, one function each, over a flat list of model tokens, and how token losses become one number.

Owns the formulas from log-probabilities and advantages to a loss a token, and the weight of a token (`token_weights`).
Promises that a loss sees model tokens only, so that no other position can get a gradient (law 1), and returns values,
not a mean: weights are a matter of the whole batch, so the micro-batch split cannot change the result.
Refuses to know where advantages come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ssp.errors import InputError

LOG_RATIO_LIMIT = 20.0  # exp stays finite in float32; the bound that the reference systems use


@dataclass(frozen=True)
class Tokens:
    """Model tokens of some whole rows, all fields [M]: row by row, in order.

    `logprobs` (with gradient) of the policy in training and `behaviour` of the policy that sampled, both at the
    sampling temperature; `advantages`; `rows`, the row that each token belongs to (for losses over sequences).
    """

    logprobs: Tensor
    behaviour: Tensor
    advantages: Tensor
    rows: Tensor

    def ratio(self) -> Tensor:
        """exp(logprobs - behaviour), the log clamped to ±20. [M], with gradient."""
        return torch.exp((self.logprobs - self.behaviour).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT))


@dataclass(frozen=True)
class LossOptions:
    """`clip_low`, `clip_high`: the ratio is kept in [1 - low, 1 + high]. `tis_cap`: largest importance weight.

    `clip_dual`: largest ratio that a negative advantage is multiplied with, 0 = no such bound.
    """

    clip_low: float = 0.2
    clip_high: float = 0.28
    tis_cap: float = 2.0
    clip_dual: float = 0.0


Loss = Callable[[Tokens, LossOptions], tuple[Tensor, Tensor]]
"""Gives (loss [M] with gradient, clipped bool [M]: tokens whose ratio bound is active)."""


def pg(tokens: Tokens, options: LossOptions) -> tuple[Tensor, Tensor]:
    """-A log pi: plain policy gradient, for on-policy batches only. Source: Williams 1992 (REINFORCE)."""
    return -tokens.advantages * tokens.logprobs, torch.zeros_like(tokens.logprobs, dtype=torch.bool)


def ppo_clip(tokens: Tokens, options: LossOptions) -> tuple[Tensor, Tensor]:
    """max(-A r, -A clip(r, 1 - low, 1 + high)), and where A < 0 at most -A dual.

    Source: Schulman et al. 2017 (arXiv 1707.06347), eq. 7; separate bounds as in DAPO (Yu et al. 2025, arXiv
    2503.14476); the constant bound for negative advantages ("dual clip") as in Ye et al. 2020 (arXiv 1912.09729).
    """
    ratio = tokens.ratio()
    kept = ratio.clamp(1.0 - options.clip_low, 1.0 + options.clip_high)
    plain, bounded = -tokens.advantages * ratio, -tokens.advantages * kept
    loss, clipped = torch.maximum(plain, bounded), bounded > plain
    if options.clip_dual:
        most = -tokens.advantages * options.clip_dual
        beyond = (tokens.advantages < 0) & (loss > most)
        loss, clipped = torch.where(beyond, most, loss), clipped | beyond
    return loss, clipped.detach()


def tis(tokens: Tokens, options: LossOptions) -> tuple[Tensor, Tensor]:
    """-sg(min(r, cap)) A log pi: truncated importance sampling.

    Source: truncation, Ionides 2008; its use for the mismatch of sampler and trainer, Yao et al. 2025.
    """
    ratio = tokens.ratio().detach()
    return -ratio.clamp(max=options.tis_cap) * tokens.advantages * tokens.logprobs, ratio > options.tis_cap


AGGREGATES = ("token-mean", "sequence-mean", "fixed-length")


def token_weights(counts: Tensor, aggregate: str, length: int) -> Tensor:
    """What one token of each episode weighs in the loss, float64 [E]; `counts` [E]: trained tokens of each episode.

    token-mean: 1 / all tokens (DAPO). sequence-mean: the mean of the episodes' own means (GRPO). fixed-length: 1 /
    (episodes * `length`), the same for long and short episodes whatever else is in the batch (Dr. GRPO, arXiv
    2503.20783). An episode without trained tokens counts nowhere.
    """
    counts = counts.double()
    episodes = (counts > 0).sum().clamp(min=1)
    if aggregate == "token-mean":
        return torch.full_like(counts, 1.0) / counts.sum().clamp(min=1)
    if aggregate == "sequence-mean":
        return 1.0 / (counts.clamp(min=1) * episodes)
    if aggregate == "fixed-length":
        return torch.full_like(counts, 1.0) / (episodes * length)
    raise InputError("aggregate must be a known name", aggregate, f"set it to one of: {', '.join(AGGREGATES)}")


_LOSSES: dict[str, Loss] = {"pg": pg, "ppo_clip": ppo_clip, "tis": tis}


def names() -> tuple[str, ...]:
    """Known names, sorted."""
    return tuple(sorted(_LOSSES))


def get(name: str) -> Loss:
    """The loss called `name`. Unknown name → InputError that lists the known ones."""
    if name not in _LOSSES:
        raise InputError("loss must be a known name", name, f"set loss to one of: {', '.join(names())}")
    return _LOSSES[name]
