"""Sampled KL estimators, one function each, over a flat list of model tokens, and the controller of their coefficient.

Owns the formulas; p is the sampled token, w = pi_ref(p) / pi(p), r = pi(p) / sg(pi(p)) (value 1, with gradient), sg stops
the gradient. Source of k1, k2, k3: Schulman 2020, "Approximating KL Divergence" (joschu.net/blog/kl-approx.html); of
the others, and of what each one's gradient really is: EMA-PG (arXiv 2602.04417). Clamps (log w at ±20, k3's value at ±10)
as in verl's `low_var_kl` and EMA-PG. The estimators over whole distributions are in `ssp.learning.kl_full`.
Promises values a token, with gradient through `logprobs` only. Refuses to know the coefficient's place and the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ssp.base.errors import InputError
from ssp.learning import kl_full

LOG_W_LIMIT, K3_LIMIT = kl_full.LOG_W_LIMIT, 10.0

Estimator = Callable[[Tensor, Tensor], Tensor]
"""(logprobs [M] with gradient, reference [M]) → [M]."""


def _log_w(logprobs: Tensor, reference: Tensor) -> Tensor:
    return (reference.detach() - logprobs).clamp(-LOG_W_LIMIT, LOG_W_LIMIT)


def _one(logprobs: Tensor) -> Tensor:
    """r: 1 with the gradient of log pi."""
    return torch.exp(logprobs - logprobs.detach())


def k1(logprobs: Tensor, reference: Tensor) -> Tensor:
    """-log w. Unbiased value; as a loss its gradient is 0 in expectation."""
    return logprobs - reference.detach()


def k2(logprobs: Tensor, reference: Tensor) -> Tensor:
    """(log w)² / 2. Biased value; its gradient is the reverse KL's."""
    return 0.5 * (logprobs - reference.detach()).square()


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """w - 1 - log w, clamped. Unbiased value inside the clamps, never negative; its gradient is the forward KL's.

    The KL loss of Search Self-play's published recipe."""
    log_w = _log_w(logprobs, reference)
    return (torch.expm1(log_w) - log_w).clamp(-K3_LIMIT, K3_LIMIT)


def k3pp(logprobs: Tensor, reference: Tensor) -> Tensor:
    """r (w - 1 - log w), clamped. Unbiased value inside the clamps; its gradient is the reverse KL's."""
    return _one(logprobs) * k3(logprobs, reference)


def k4(logprobs: Tensor, reference: Tensor) -> Tensor:
    """r sg(-log w). Unbiased value; its gradient is the reverse KL's."""
    return _one(logprobs) * (logprobs - reference).detach()


def k5(logprobs: Tensor, reference: Tensor) -> Tensor:
    """sg(w) log w + log r, log w clamped. Unbiased value of the forward KL, and its gradient."""
    log_w = _log_w(logprobs, reference)
    return torch.exp(log_w.detach()) * log_w + logprobs - logprobs.detach()


def absolute(logprobs: Tensor, reference: Tensor) -> Tensor:
    """|log w|, called `abs`. Biased value; its gradient is that of the expected sign of -log w. Source: Search-R1."""
    return (logprobs - reference.detach()).abs()


_ESTIMATORS: dict[str, Any] = {
    "k1": k1,
    "k2": k2,
    "k3": k3,
    "k3pp": k3pp,
    "k4": k4,
    "k5": k5,
    "abs": absolute,
    **kl_full.DIVERGENCES,
}


def names() -> tuple[str, ...]:
    """Known names, sorted."""
    return tuple(sorted(_ESTIMATORS))


def get(name: str) -> Any:
    """The estimator called `name`: an `Estimator`, or where its attribute `distributions` is true a
    `ssp.learning.kl_full.Divergence`. Unknown name → InputError that lists the known ones."""
    if name not in _ESTIMATORS:
        raise InputError("kl.kind must be a known name", name, f"set kl.kind to one of: {', '.join(names())}")
    return _ESTIMATORS[name]


class Controller:
    """The coefficient: fixed while `target` is 0, else steered so that the measured KL comes to `target`.

    beta ← beta (1 + clip(KL / target - 1, -0.2, 0.2) n / horizon) after an update on n episodes.
    Source: Ziegler et al. 2019 (arXiv 1909.08593), section 2.2.
    """

    def __init__(self, coef: float, target: float = 0.0, horizon: float = 10_000.0) -> None:
        self.coef = coef
        self._target, self._horizon = target, horizon

    def update(self, measured: float, episodes: int) -> None:
        """Take in the mean KL a token (nats) of an update on so many episodes."""
        if self._target:
            error = min(max(measured / self._target - 1.0, -0.2), 0.2)
            self.coef *= 1.0 + error * episodes / self._horizon
