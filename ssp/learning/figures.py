"""The figures of one update, summed over its micro-batches, and how much of the machine it uses.

Each is averaged over the tokens that were computed; a loss and a norm over the optimizer steps. All of them describe
the policy before the optimizer step that they belong to.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ssp.learning.backends.ranks import Ranks
from ssp.learning.losses import Tokens

OCTAVES = (-33, 7)
"""Powers of 2 between which sizes of log-ratios are told apart: 1e-10 (float32 noise is above) to 128 nats."""
PARTS = 8
"""Bins an octave: a quantile is right to a ninth."""
CPU_SIZE, GPU_SIZE = 768, 8192
"""Side of the matrices of the probe: 0.9 GFLOP a product on a CPU, 1.1 TFLOP on a GPU."""


@dataclass
class Figures:
    """Running sums, counts and `_max`, so that ranks can put theirs together.

    `loss`, `norm`, `value_loss`: one for each of `steps` optimizer steps, summed; of the whole step, so every rank
    knows them. `low`, `high`, `dual`: tokens that were clipped because their ratio was small; large, with an advantage
    of at least 0; large, with a negative one. `masked`: tokens that a correction took out. `sizes`: how many log-ratios
    of trainer to sampler are of which size, by bins of `OCTAVES`. `work`: operations, see `Work`.
    """

    steps: int = 0
    loss: float = 0.0
    norm: float = 0.0
    value_loss: float = 0.0
    tokens: float = 0.0
    ratio: float = 0.0
    ratio_squares: float = 0.0
    ratio_max: float = 0.0
    low: float = 0.0
    high: float = 0.0
    dual: float = 0.0
    masked: float = 0.0
    correctable: float = 0.0
    entropy: float = 0.0
    nll: float = 0.0
    compared: float = 0.0
    mismatch: float = 0.0
    mismatch_max: float = 0.0
    kl: float = 0.0
    kl_tokens: float = 0.0
    values: float = 0.0
    values_clipped: float = 0.0
    values_tokens: float = 0.0
    work: float = 0.0
    sizes: Tensor = field(default_factory=lambda: torch.zeros((OCTAVES[1] - OCTAVES[0]) * PARTS, dtype=torch.float64))

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
            **({} if masked is None else {"masked": masked.sum(), "correctable": torch.ones_like(masked).sum()}),
            "entropy": entropy.sum(),
            "nll": -tokens.logprobs.sum(),
            "mismatch": (torch.expm1(log_ratio) - log_ratio).sum(),
            "mismatch_max": log_ratio.abs().max(),
        }
        values = torch.stack([value.double() for value in found.values()]).tolist()  # one transfer from the device
        for name, value in zip(found, values, strict=True):
            if self.steps and name.startswith("mismatch"):
                continue  # an earlier mini-batch has moved the policy, which is no mismatch of the two programs
            old = getattr(self, name)
            setattr(self, name, max(old, value) if name.endswith("_max") else old + value)
        self.tokens += ratio.numel()
        if not self.steps:
            self.compared += ratio.numel()
            place = (log_ratio.abs().log2() - OCTAVES[0]) * PARTS
            place = place.nan_to_num(nan=len(self.sizes)).clamp(0, len(self.sizes) - 1).long()
            self.sizes += torch.bincount(place, minlength=len(self.sizes)).cpu()

    def add_kl(self, divergence: Tensor) -> None:
        """Take in the KL to the reference of some tokens, [M]."""
        self.kl += float(divergence.detach().sum())
        self.kl_tokens += divergence.numel()

    def add_values(self, values: Tensor, clipped: Tensor) -> None:
        """Take in the critic's values of some tokens [M], and which of them moved too far."""
        self.values += float(values.detach().sum())
        self.values_clipped += float(clipped.sum())
        self.values_tokens += values.numel()

    def reduce(self, ranks: Ranks) -> None:
        """Put together what the ranks computed, on all of them."""
        ours = vars(self)
        names = [name for name in ours if name not in ("loss", "norm", "value_loss", "steps", "sizes")]
        largest = [name for name in names if name.endswith("_max")]
        summed = [name for name in names if name not in largest]
        ours.update(zip(largest, ranks.most([ours[name] for name in largest]), strict=True))
        ours.update(zip(summed, ranks.total([ours[name] for name in summed]), strict=True))
        ranks.sum_([self.sizes])

    def quantile(self, share: float) -> float:
        """The size of log-ratio, nats, that `share` of the tokens do not exceed: its bin's upper end, 0 for the
        lowest."""
        place = int((self.sizes.cumsum(0) >= share * self.compared).int().argmax())
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
        if self.correctable:
            out["correction/masked"] = self.masked / self.correctable
        if self.kl_tokens:
            out["kl"] = self.kl / self.kl_tokens
        if self.values_tokens:
            out["value/loss"] = self.value_loss / steps
            out["value/mean"] = self.values / self.values_tokens
            out["value/clip_fraction"] = self.values_clipped / self.values_tokens
        return out


@dataclass(frozen=True)
class Work:
    """Floating-point operations of one token, forward (`body`, `head`: the output layer) and backward, and of
    attention: what the model needs, without padding and recomputation.

    A matrix product of an [a, b] weight costs 2ab a token forward, as much for the gradient of its input, and as much
    again for its own where it is trained (Kaplan et al. 2020, arXiv 2001.08361, section 2.1: 6N). Causal attention
    costs 2 width L^2 a layer and sequence of L tokens forward, and twice that backward.
    """

    body: float
    head: float
    body_back: float
    head_back: float
    attention: float

    @staticmethod
    def of(model: PreTrainedModel) -> Work:
        """Of a causal language model; frozen weights (under adapters) cost no gradient of their own."""
        output, config = model.get_output_embeddings(), model.config
        body = body_back = 0.0
        for module in model.modules():
            if isinstance(module, nn.Linear) and module is not output:
                body += 2 * module.in_features * module.out_features
                body_back += 2 * module.in_features * module.out_features * (1 + module.weight.requires_grad)
        head = 2.0 * output.in_features * output.out_features
        heads = config.num_attention_heads
        width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
        back = head * (1 + output.weight.requires_grad)
        return Work(body, head, body_back, back, 2.0 * width * config.num_hidden_layers)

    def operations(self, lengths: Sequence[int], predicted: int, backward: bool) -> float:
        """Of sequences of `lengths` tokens, `predicted` of them through the output layer; with or without backward."""
        tokens, squares = sum(lengths), float(sum(length * length for length in lengths))
        forward = self.body * tokens + self.head * predicted + self.attention * squares
        if not backward:
            return forward
        return forward + self.body_back * tokens + self.head_back * predicted + 2 * self.attention * squares


@functools.cache
def matrix_rate(device: str, dtype: torch.dtype) -> float:
    """Operations a second of a large matrix product on `device`, the best of several, on the threads torch has now."""
    gpu = torch.device(device).type == "cuda"
    size = GPU_SIZE if gpu else CPU_SIZE
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(8):
        started = time.perf_counter()
        left @ right
        if gpu:
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - started)
    return 2.0 * size**3 / best
