"""KL estimators over whole next-token distributions: exact, and exact on k tokens with a sampled tail.

Owns the formulas; the policy is pi, ref the reference, p the sampled token, drawn from `behaviour`; s = pi(p) /
behaviour(p) corrects for that, without gradient. Source: EMA-PG (arXiv 2602.04417). The published top-k loss has the
right value but not the right gradient: it differs by +grad of pi's mass on the top k (reverse) or of pi's mass off it
(forward). `variant=paper` is that loss; `exact` drops the surplus term, so that value and gradient are the true KL's at
every k and for every set that does not depend on p.
Promises values [M], with gradient through the policy only. Refuses to make distributions: both come as log-softmax.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

LOG_W_LIMIT = 20.0


@dataclass(frozen=True)
class TopK:
    """`k` tokens computed exactly (0: none, the vocabulary: all); `variant` exact or paper.

    `low`, `high`: bounds of s (0 = no upper one).
    """

    k: int
    variant: str = "exact"
    low: float = 0.0
    high: float = 0.0


Divergence = Callable[[Tensor, Tensor, Tensor, Tensor | None, TopK], Tensor]
"""(policy [M, V] log-probs with gradient, reference [M, V], sampled long [M], behaviour [M] or None, options) → [M].

`behaviour` None: s is 1, which is right when the policy itself drew p."""


def importance(logprobs: Tensor, behaviour: Tensor, low: float = 0.0, high: float = 0.0) -> Tensor:
    """s = exp(logprobs - behaviour), the log clamped to ±20, then s to [low, high] (high 0: no bound). No gradient."""
    s = torch.exp((logprobs - behaviour).detach().clamp(-LOG_W_LIMIT, LOG_W_LIMIT))
    return s.clamp(min=low, max=high or None)


def full(policy: Tensor, reference: Tensor, sampled: Tensor, behaviour: Tensor | None, options: TopK) -> Tensor:
    """sum_j pi(j) (log pi(j) - log ref(j)): the reverse KL over the whole vocabulary. `sampled` and what follows: unread."""
    return (policy.exp() * (policy - reference.detach())).sum(dim=-1)


def topk_reverse(policy: Tensor, reference: Tensor, sampled: Tensor, behaviour: Tensor | None, options: TopK) -> Tensor:
    """sum_{j in q} pi(j) sg(log pi(j) - log ref(j)) + s 1[p not in q] r sg(log pi(p) - log ref(p)), q the policy's top k.

    `paper`: without the first sg. Source of q: the published code takes the sampling policy's, which is this one on
    policy; any q that does not depend on p serves.
    """
    top = policy.detach().topk(min(options.k, policy.shape[-1]), dim=-1).indices
    chosen = policy.gather(-1, top)
    gap = chosen - reference.detach().gather(-1, top)
    head = (chosen.exp() * (gap if options.variant == "paper" else gap.detach())).sum(dim=-1)
    own = _at(policy, sampled)
    tail = torch.exp(own - own.detach()) * (own - _at(reference, sampled)).detach()
    return head + _tail_weight(policy, top, sampled, behaviour, options) * tail


def topk_forward(policy: Tensor, reference: Tensor, sampled: Tensor, behaviour: Tensor | None, options: TopK) -> Tensor:
    """sum_{j in q} ref(j) (log ref(j) - log pi(j)) + s 1[p not in q] sg(w) log w, q the reference's top k.

    w = ref / pi at p, its log clamped to ±20. `paper`: the tail is k5, which has log r on top. With k = vocabulary this
    is the forward KL itself.
    """
    reference = reference.detach()
    top = reference.topk(min(options.k, reference.shape[-1]), dim=-1).indices
    chosen = reference.gather(-1, top)
    head = (chosen.exp() * (chosen - policy.gather(-1, top))).sum(dim=-1)
    own = _at(policy, sampled)
    log_w = (_at(reference, sampled) - own).clamp(-LOG_W_LIMIT, LOG_W_LIMIT)
    tail = torch.exp(log_w.detach()) * log_w
    if options.variant == "paper":
        tail = tail + own - own.detach()
    return head + _tail_weight(policy, top, sampled, behaviour, options) * tail


DIVERGENCES: dict[str, Divergence] = {"topk_reverse": topk_reverse, "topk_forward": topk_forward, "full": full}
for (
    _divergence
) in DIVERGENCES.values():  # what they say of themselves: the log-probs of the sampled tokens do not suffice
    vars(_divergence).update(distributions=True)


def _at(logprobs: Tensor, ids: Tensor) -> Tensor:
    return logprobs.gather(-1, ids[:, None]).squeeze(-1)


def _tail_weight(policy: Tensor, top: Tensor, sampled: Tensor, behaviour: Tensor | None, options: TopK) -> Tensor:
    """s where the sampled token is outside `top` [M, k], 0 where it is inside. No gradient."""
    own = _at(policy, sampled).detach()
    s = torch.ones_like(own) if behaviour is None else importance(own, behaviour, options.low, options.high)
    return torch.where((top == sampled[:, None]).any(dim=-1), 0.0, s)
