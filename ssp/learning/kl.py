"""KL estimators and how their coefficient is steered.

Sampled ones, over a flat list of model tokens: p is the sampled token, w = pi_ref(p) / pi(p), r =
pi(p) / sg(pi(p)) (value 1, with gradient), sg stops the gradient. Source of k1, k2, k3: Schulman
2020 (joschu.net/blog/kl-approx.html); of `abs`: Search-R1 (arXiv 2503.09516); of the others, and of
what each one's gradient really is: EMA-PG (arXiv 2602.04417). Clamps (log w at ±20, k3's value at
±10) as in verl and EMA-PG.

Those over whole next-token distributions (log-softmax), exact, or exact on k tokens with a sampled
tail: p was drawn from `behaviour`, s = pi(p) / behaviour(p) corrects for that, without gradient.
Source: EMA-PG. The published top-k loss has the right value but not the right gradient: it differs
by +grad of pi's mass on the top k (reverse) or of pi's mass off it (forward). With `_paper` behind
its name an estimator is that loss; else it drops the surplus term, so that value and gradient are
the true KL's at every k and for every set that does not depend on p."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ssp.base.errors import hold
from ssp.base.places import function, is_own
from ssp.config.role import KlConfig

if TYPE_CHECKING:  # rules about settings read the names without torch
    from torch import Tensor

LOG_W_LIMIT = 20.0
K3_LIMIT = 10.0


def _log_w(logprobs: Tensor, reference: Tensor) -> Tensor:
    """log w, clamped, with gradient."""
    return (reference.detach() - logprobs).clamp(-LOG_W_LIMIT, LOG_W_LIMIT)


def _one(logprobs: Tensor) -> Tensor:
    """r: 1 with the gradient of log pi."""
    return (logprobs - logprobs.detach()).exp()


def k1(logprobs: Tensor, reference: Tensor) -> Tensor:
    """-log w. Unbiased value; as a loss its gradient is 0 in expectation."""
    return logprobs - reference.detach()


def k2(logprobs: Tensor, reference: Tensor) -> Tensor:
    """(log w)² / 2. Biased value; its gradient is the reverse KL's."""
    return 0.5 * (logprobs - reference.detach()).square()


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """w - 1 - log w, clamped. Unbiased value inside the clamps, never negative; its gradient is the
    forward KL's.

    The KL loss of Search Self-play's published recipe."""
    log_w = _log_w(logprobs, reference)
    return (log_w.expm1() - log_w).clamp(-K3_LIMIT, K3_LIMIT)


def k3pp(logprobs: Tensor, reference: Tensor) -> Tensor:
    """r (w - 1 - log w), clamped. Unbiased value inside the clamps; its gradient is the reverse
    KL's."""
    return _one(logprobs) * k3(logprobs, reference)


def k4(logprobs: Tensor, reference: Tensor) -> Tensor:
    """r sg(-log w). Unbiased value; its gradient is the reverse KL's."""
    return _one(logprobs) * (logprobs - reference).detach()


def k5(logprobs: Tensor, reference: Tensor) -> Tensor:
    """sg(w) log w + log r, log w clamped. Unbiased value of the forward KL, and its gradient."""
    log_w = _log_w(logprobs, reference)
    return log_w.detach().exp() * log_w + logprobs - logprobs.detach()


def absolute(logprobs: Tensor, reference: Tensor) -> Tensor:
    """|log w|, called `abs`. Biased value; its gradient is that of sum_j |pi(j) - ref(j)|, twice the
    total variation."""
    return (logprobs - reference.detach()).abs()


def at(logprobs: Tensor, ids: Tensor) -> Tensor:
    """[M]: the log-probs of the tokens `ids` [M] among all, [M, V]."""
    return logprobs.gather(-1, ids[:, None]).squeeze(-1)


def importance(logprobs: Tensor, behaviour: Tensor) -> Tensor:
    """s = exp(logprobs - behaviour), the log clamped to ±20. No gradient."""
    return (logprobs - behaviour).detach().clamp(-LOG_W_LIMIT, LOG_W_LIMIT).exp()


def full(
    policy: Tensor, reference: Tensor, sampled: Tensor, behaviour: Tensor | None, k: int
) -> Tensor:
    """sum_j pi(j) (log pi(j) - log ref(j)): the reverse KL over the whole vocabulary.

    [M], as all of `WHOLE` give it. They take log-probs of every token, of `policy` [M, V] with
    gradient and of `reference` [M, V]; the ids `sampled` (long [M]) and the log-probs `behaviour`
    [M] that they were drawn with (None: the policy drew them, so s is 1); and `k`, how many tokens
    are computed exactly. Here all are, so that the last three count for nothing."""
    return (policy.exp() * (policy - reference.detach())).sum(dim=-1)


def topk_reverse(
    policy: Tensor,
    reference: Tensor,
    sampled: Tensor,
    behaviour: Tensor | None,
    k: int,
    paper: bool = False,
) -> Tensor:
    """sum_{j in q} pi(j) sg(log pi(j) - log ref(j)) + s 1[p not in q] r sg(log pi(p) - log ref(p)),
    q the policy's top k.

    `paper`: without the first sg. Any q that does not depend on p serves."""
    top = policy.detach().topk(min(k, policy.shape[-1]), dim=-1).indices
    chosen = policy.gather(-1, top)
    gap = chosen - reference.detach().gather(-1, top)
    if not paper:
        gap = gap.detach()
    head = (chosen.exp() * gap).sum(dim=-1)
    tail = k4(at(policy, sampled), at(reference, sampled))
    return head + _tail_weight(policy, top, sampled, behaviour) * tail


def topk_forward(
    policy: Tensor,
    reference: Tensor,
    sampled: Tensor,
    behaviour: Tensor | None,
    k: int,
    paper: bool = False,
) -> Tensor:
    """sum_{j in q} ref(j) (log ref(j) - log pi(j)) + s 1[p not in q] sg(w) log w, q the reference's
    top k.

    w = ref / pi at p, its log clamped to ±20. `paper`: the tail is k5, which has log r on top."""
    reference = reference.detach()
    top = reference.topk(min(k, reference.shape[-1]), dim=-1).indices
    chosen = reference.gather(-1, top)
    head = (chosen.exp() * (chosen - policy.gather(-1, top))).sum(dim=-1)
    own = at(policy, sampled)
    log_w = _log_w(own, at(reference, sampled))
    tail = log_w.detach().exp() * log_w
    if paper:
        tail = tail + own - own.detach()
    return head + _tail_weight(policy, top, sampled, behaviour) * tail


def _tail_weight(policy: Tensor, top: Tensor, sampled: Tensor, behaviour: Tensor | None) -> Tensor:
    """s where the sampled token is outside `top` [M, k], 0 where it is inside. No gradient."""
    own = at(policy, sampled).detach()
    s = own.new_ones(own.shape) if behaviour is None else importance(own, behaviour)
    inside = (top == sampled[:, None]).any(dim=-1)
    return s.masked_fill(inside, 0.0)


SAMPLED: dict[str, Callable[..., Tensor]] = {
    "k1": k1,
    "k2": k2,
    "k3": k3,
    "k3pp": k3pp,
    "k4": k4,
    "k5": k5,
    "abs": absolute,
}
"""Those of the sampled tokens' log-probs."""
WHOLE: dict[str, Callable[..., Tensor]] = {
    "topk_reverse": topk_reverse,
    "topk_forward": topk_forward,
    "topk_reverse_paper": partial(topk_reverse, paper=True),
    "topk_forward_paper": partial(topk_forward, paper=True),
    "full": full,
}
"""Those of whole next-token distributions."""
ESTIMATORS = SAMPLED | WHOLE
"""By name, as `kl.kind` has it."""


def names() -> tuple[str, ...]:
    """Known names, sorted."""
    return tuple(sorted(ESTIMATORS))


def get(name: str) -> Any:
    """The estimator called `name`, or the user's own at that place. One of `WHOLE` is called as
    `full` is; all others, a user's own too, with (logprobs [M] with gradient, reference [M]) and
    give [M]. InputError for an unknown name; of a user's own each result is looked at."""
    if not is_own(name):
        step = f"set kl.kind to one of: {', '.join(names())}"
        hold(name in ESTIMATORS, "kl.kind must be a known name", name, step)
        return ESTIMATORS[name]

    rule = f"the KL {name}"
    theirs = function(name, rule, "(logprobs, reference)", None, None)

    def checked(logprobs: Tensor, reference: Tensor) -> Tensor:
        import torch

        values = theirs(logprobs, reference)
        fits = isinstance(values, torch.Tensor) and values.shape == logprobs.shape
        given = getattr(values, "shape", type(values).__name__)
        step = f"return a tensor of {tuple(logprobs.shape)}"
        hold(fits, f"{rule} gives one number a token", given, step)

        # a diverged policy's log-probs are no fault of this function
        judged = torch.isfinite(logprobs - reference)
        finite = bool(torch.isfinite(values[judged]).all())
        hold(finite, f"{rule} gives finite numbers", "another one", "bound it, as clamp does")

        acts = values.requires_grad or not logprobs.requires_grad
        step = "compute it from logprobs, or set kl.place=reward"
        hold(acts, f"{rule} has a gradient where it is in the loss", "none", step)
        return values.to(logprobs)

    return checked


def steered(coef: float, config: KlConfig, measured: float, episodes: int) -> float:
    """The coefficient after an update on so many episodes whose mean KL a token (nats) was
    `measured`: beta ← beta (1 + clip(KL / target - 1, -0.2, 0.2) n / horizon). It stays while
    `target` is 0.

    Source: Ziegler et al. 2019 (arXiv 1909.08593), section 2.2."""
    if not config.target:
        return coef
    error = min(max(measured / config.target - 1.0, -0.2), 0.2)
    return coef * (1.0 + error * episodes / config.horizon)
