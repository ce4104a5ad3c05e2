"""Sampled KL estimators, one function each, over a flat list of model tokens.

Owns the formulas; w = pi_ref / pi of the sampled token. Source of k1, k2, k3: Schulman 2020, "Approximating KL
Divergence" (joschu.net/blog/kl-approx.html); the clamps are those of verl's `low_var_kl`, as SSP and EMA-PG run it.
Promises values a token, with gradient through `logprobs` only. Refuses to know the coefficient and the mean.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ssp.errors import InputError

LOG_W_LIMIT, K3_LIMIT = 20.0, 10.0

Estimator = Callable[[Tensor, Tensor], Tensor]
"""(logprobs [M] with gradient, reference [M]) → [M]."""


def k1(logprobs: Tensor, reference: Tensor) -> Tensor:
    """-log w. Unbiased value; as a loss its gradient is 0 in expectation (EMA-PG, arXiv 2602.04417)."""
    return logprobs - reference.detach()


def k2(logprobs: Tensor, reference: Tensor) -> Tensor:
    """(log w)² / 2. Biased value; its gradient is the reverse KL's (EMA-PG, arXiv 2602.04417)."""
    return 0.5 * (logprobs - reference.detach()).square()


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """w - 1 - log w, log w clamped to ±20 and the value to ±10. Unbiased value inside the clamps, never negative;
    its gradient is the forward KL's (EMA-PG, arXiv 2602.04417). The KL loss of Search Self-play's published recipe."""
    log_w = (reference.detach() - logprobs).clamp(-LOG_W_LIMIT, LOG_W_LIMIT)
    return (torch.expm1(log_w) - log_w).clamp(-K3_LIMIT, K3_LIMIT)


_ESTIMATORS: dict[str, Estimator] = {"k1": k1, "k2": k2, "k3": k3}


def names() -> tuple[str, ...]:
    """Known names, sorted."""
    return tuple(sorted(_ESTIMATORS))


def get(name: str) -> Estimator:
    """The estimator called `name`. Unknown name → InputError that lists the known ones."""
    if name not in _ESTIMATORS:
        raise InputError("kl.kind must be a known name", name, f"set kl.kind to one of: {', '.join(names())}")
    return _ESTIMATORS[name]
