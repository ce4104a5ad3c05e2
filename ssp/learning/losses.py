"""Policy losses, one function each, over a flat list of model tokens, and how token losses become
one number.

A loss gives values a token, not a mean: weights (`token_weights`) are a matter of the whole batch,
so the micro-batch split cannot change the result. Every row is whole in one call: losses and masks
over sequences average over a row. A sequence is a row; an episode that was cut into several
contexts is several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssp.base.errors import InputError, hold
from ssp.base.places import function
from ssp.config import own
from ssp.config.role import CorrectionConfig

if TYPE_CHECKING:  # rules about settings read the names without torch
    from torch import Tensor

LOG_RATIO_LIMIT = 20.0  # exp stays finite in float32; the bound that the reference systems use


@dataclass(frozen=True)
class Tokens:
    """Model tokens of some whole rows, all fields [M]: row by row, in order.

    `logprobs` (with gradient) of the policy in training and `behaviour` of the policy that sampled,
    both at the sampling temperature; `rows`, the row that each token belongs to, `turns` the
    policy's turn; `proximal`: log-probs of the policy in training as the update began, None where
    it is still that one."""

    logprobs: Tensor
    behaviour: Tensor
    advantages: Tensor
    rows: Tensor
    proximal: Tensor | None = None
    turns: Tensor | None = None

    def ratio(self) -> Tensor:
        """exp(logprobs - behaviour), the log clamped to ±20. [M], with gradient."""
        return _exp(self.logprobs - self.behaviour)

    def start(self) -> Tensor:
        """`proximal`, or the log-probs as they are. [M], without gradient."""
        return (self.logprobs if self.proximal is None else self.proximal).detach()

    def start_ratio(self) -> Tensor:
        """exp(start - behaviour), the log clamped to ±20: how far trainer and sampler were apart as
        the update began."""
        return _exp(self.start() - self.behaviour.detach())


@dataclass(frozen=True)
class LossOptions:
    """`clip_low`, `clip_high`: the ratio is kept in [1 - low, 1 + high]. `tis_cap`: largest
    importance weight.

    `clip_dual`: largest ratio that a negative advantage is multiplied with, 0 = no such bound."""

    clip_low: float = 0.2
    clip_high: float = 0.28
    tis_cap: float = 2.0
    clip_dual: float = 0.0


Loss = Callable[[Tokens, LossOptions], "tuple[Tensor, Tensor]"]
"""Gives (loss [M] with gradient, clipped bool [M]: tokens whose ratio bound is active)."""


def pg(tokens: Tokens, options: LossOptions) -> tuple[Tensor, Tensor]:
    """-A log pi: plain policy gradient, for on-policy batches only. Source: Williams 1992
    (REINFORCE)."""
    loss = -tokens.advantages * tokens.logprobs
    return loss, _nowhere(loss)


def ppo_clip(tokens: Tokens, options: LossOptions) -> tuple[Tensor, Tensor]:
    """max(-A r, -A clip(r, 1 - low, 1 + high)), and where A < 0 at most -A dual.

    Source: Schulman et al. 2017 (arXiv 1707.06347), eq. 7; separate bounds: DAPO (arXiv
    2503.14476); dual clip: Ye et al. 2020 (arXiv 1912.09729)."""
    return _clipped(tokens.ratio(), tokens.advantages, options)


def gspo(tokens: Tokens, options: LossOptions) -> tuple[Tensor, Tensor]:
    """`ppo_clip` with one ratio a sequence: s = exp(mean of the sequence's log r), the geometric
    mean of its ratios.

    A token has s_t = sg(s) pi_t / sg(pi_t): the value s, and a gradient through its own log-prob.
    Source: Zheng et al. 2025 (arXiv 2507.18071), GSPO and, for s_t, its GSPO-token; the paper's
    bounds are 3e-4 and 4e-4."""
    mean = _row_mean(tokens.logprobs.detach() - tokens.behaviour, tokens.rows)
    own = tokens.logprobs - tokens.logprobs.detach()
    return _clipped(_exp(mean) * own.exp(), tokens.advantages, options)


def cispo(tokens: Tokens, options: LossOptions) -> tuple[Tensor, Tensor]:
    """-sg(clip(r, 1 - low, 1 + high)) A log pi: the weight is bounded, and no token loses its
    gradient.

    Source: MiniMax-M1 (arXiv 2506.13585), eq. 4 and 5; there low is so large that it never acts (1
    here)."""
    ratio = tokens.ratio().detach()
    kept = ratio.clamp(1.0 - options.clip_low, 1.0 + options.clip_high)
    return -kept * tokens.advantages * tokens.logprobs, kept != ratio


def decoupled(tokens: Tokens, options: LossOptions) -> tuple[Tensor, Tensor]:
    """min(w, cap) max(-A u, -A clip(u, 1 - low, 1 + high)), u = pi / pi_prox, w = sg(pi_prox /
    pi_behaviour), cap `tis_cap`.

    Source: Hilton et al. 2021 (arXiv 2110.00641); for stale rollouts AReaL (arXiv 2505.24298), eq.
    5; the cap is that of `tis`, whose gradient it has in an update's first optimizer step."""
    weight = tokens.start_ratio()
    ratio = _exp(tokens.logprobs - tokens.start())
    loss, clipped = _clipped(ratio, tokens.advantages, options)
    return weight.clamp(max=options.tis_cap) * loss, clipped | (weight > options.tis_cap)


def tis(tokens: Tokens, options: LossOptions) -> tuple[Tensor, Tensor]:
    """-sg(min(r, cap)) A log pi: truncated importance sampling. Source: Ionides 2008; its use for
    the mismatch of sampler and trainer, Yao et al. 2025."""
    ratio = tokens.ratio().detach()
    weight = ratio.clamp(max=options.tis_cap)
    return -weight * tokens.advantages * tokens.logprobs, ratio > options.tis_cap


def corrected(loss: Tensor, tokens: Tokens, correction: CorrectionConfig) -> tuple[Tensor, Tensor]:
    """`loss` [M] with 0, and no gradient, where trainer and sampler disagree too much; masked bool
    [M]: where that is.

    Judged by `Tokens.start_ratio`. Mask `token` takes out tokens whose ratio is outside [low,
    high], `sequence` all tokens of a row whose ratios have a geometric mean outside. They stay in
    the denominators (`token_weights`), as published. Source: IcePop, Ling Team 2025 (arXiv 2510.18855),
    whose M(k) min(...) is `decoupled` under the token mask; sequences: Liu et al. 2025, "When Speed
    Kills Stability", by the geometric mean of GSPO."""
    if correction.mask == "none":
        return loss, _nowhere(loss)
    ratio = tokens.start_ratio()
    if correction.mask == "sequence":
        ratio = _row_mean(ratio.log(), tokens.rows).exp()
    masked = (ratio < correction.low) | (ratio > correction.high)
    return loss.masked_fill(masked, 0.0), masked


def llds(tokens: Tokens) -> Tensor:
    """max(0, log pi_sampler - log pi) where A >= 0, of turns that became less likely as a whole;
    else 0. [M], with gradient.

    A term beside any loss: what was not worse than the rest keeps its likelihood. Source: Deng et
    al. 2025 (arXiv 2512.04220), LLDS with the gate by actions, which are turns here; without
    `turns` the gate is by rows, the paper's other form. Tokens weigh as in the loss: under
    token-mean it is a mean over all tokens, as in the authors' code; their paper writes a mean over
    the preserved ones."""
    fell = (tokens.behaviour - tokens.logprobs).masked_fill(tokens.advantages < 0, 0.0)
    gates = tokens.rows if tokens.turns is None else tokens.turns
    as_likely = _row_mean(fell.detach(), gates) <= 0
    return fell.clamp(min=0.0).masked_fill(as_likely, 0.0)


def token_weights(counts: Tensor, aggregate: str, length: int) -> Tensor:
    """What one token of each episode weighs in the loss, float64 [E]; `counts` [E]: trained tokens
    of each episode.

    token-mean: 1 / all tokens (DAPO). sequence-mean: the mean of the episodes' own means (GRPO).
    fixed-length: 1 / (episodes * `length`) (Dr. GRPO, arXiv 2503.20783). An episode without trained
    tokens counts nowhere."""
    counts = counts.double()
    episodes = (counts > 0).sum().clamp(min=1)
    if aggregate == "token-mean":
        return counts.new_ones(counts.shape) / counts.sum().clamp(min=1)
    if aggregate == "sequence-mean":
        return 1.0 / (counts.clamp(min=1) * episodes)
    return counts.new_ones(counts.shape) / (episodes * length)


def _exp(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def _nowhere(values: Tensor) -> Tensor:
    """False for each of `values`."""
    import torch

    return torch.zeros_like(values, dtype=torch.bool)


def _row_mean(values: Tensor, rows: Tensor) -> Tensor:
    """[M]: the mean of `values` [M] over each token's row."""
    _, index, counts = rows.unique(return_inverse=True, return_counts=True)
    sums = values.new_zeros(len(counts)).index_add_(0, index, values)
    return (sums / counts)[index]


def _clipped(ratio: Tensor, advantages: Tensor, options: LossOptions) -> tuple[Tensor, Tensor]:
    """The clipped surrogate of `ppo_clip` for any ratio [M] with gradient."""
    kept = ratio.clamp(1.0 - options.clip_low, 1.0 + options.clip_high)
    plain = -advantages * ratio
    bounded = -advantages * kept
    loss = plain.maximum(bounded)
    clipped = bounded > plain
    if options.clip_dual:
        most = -advantages * options.clip_dual
        beyond = (advantages < 0) & (loss > most)
        loss = most.where(beyond, loss)
        clipped = clipped | beyond
    return loss, clipped.detach()


TRUSTED: dict[str, Loss] = {
    "ppo_clip": ppo_clip,
    "tis": tis,
    "decoupled": decoupled,
    "gspo": gspo,
    "cispo": cispo,
}
"""Those that use the behaviour log-probs (law 5)."""
LOSSES = {"pg": pg} | TRUSTED
"""By name, as `loss` has it."""


def names() -> tuple[str, ...]:
    """Known names, sorted."""
    return tuple(sorted(LOSSES))


def trusted(name: str) -> bool:
    """Whether the loss uses the behaviour log-probs. A user's own says so by its attribute
    `trust_region`; of a run that is only looked at it is not asked."""
    return name in TRUSTED or own.sealed(name) or own.says(name, "trust_region") is True


def get(name: str) -> Loss:
    """The loss called `name`, or the user's own at that place. Unknown name → InputError that lists
    the known ones."""
    if own.is_own(name):
        return _own(name)
    step = f"set loss to one of: {', '.join(names())}"
    hold(name in LOSSES, "loss must be a known name", name, step)
    return LOSSES[name]


def looks_back(name: str) -> bool:
    """Whether the loss may read `Tokens.proximal`, from an update's second optimizer step on."""
    return own.is_own(name) or name == decoupled.__name__


def _own(place: str) -> Loss:
    """The loss at a user's place, looked at each time."""
    rule = f"the loss {place}"
    theirs = function(place, rule, "(tokens, options)", None, None)
    import torch

    def checked(tokens: Tokens, options: LossOptions) -> tuple[Tensor, Tensor]:
        pair = theirs(tokens, options)
        shape = tokens.logprobs.shape
        is_pair = isinstance(pair, tuple) and len(pair) == 2
        if not is_pair or not all(isinstance(t, torch.Tensor) and t.shape == shape for t in pair):
            each = f"{rule} gives a loss a token, and whether it is clipped"
            step = f"return two tensors of {tuple(shape)}: losses, and where a bound on the ratio"
            raise InputError(each, type(pair).__name__, f"{step} acts")
        return pair

    return checked
