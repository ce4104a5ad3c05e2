"""The figures of one update, summed over its micro-batches, and how much of the machine it uses.

Each is averaged over the tokens that were computed; a loss and a norm over the optimizer steps. All
of them describe the policy before the optimizer step that they belong to."""

import functools
import math
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ssp.base import products
from ssp.base.values import Values
from ssp.learning.backends.ranks import Ranks
from ssp.learning.losses import Tokens

CPU_SIZE = 768
"""Side of the probe's matrices on a CPU: 0.9 GFLOP a product."""
GPU_SIZE = 8192
"""The same on a GPU: 1.1 TFLOP a product."""

SUMS = (
    "tokens ratio ratio_squares ratio_max low high dual masked correctable entropy nll compared"
    " mismatch mismatch_max kl right right_nll right_drift wrong wrong_nll wrong_drift kl_tokens"
    " values values_clipped values_tokens"
).split()


class Figures:
    """Running sums and, of names that end in `_max`, maxima, so that ranks can put theirs together.

    `loss`, `norm`, `value_loss`: one for each of `steps` optimizer steps, summed; of the whole
    step, so every rank knows them. `work`: operations, see `Work`. `sums`: see `SUMS`. There `low`,
    `high` and `dual` count clipped tokens: their ratio was small; large, with an advantage of at
    least 0; large, with a negative one. `masked`: tokens that a correction took out. `right`,
    `wrong`: tokens with an advantage above, below 0."""

    def __init__(self) -> None:
        self.steps = 0
        self.loss = 0.0
        self.norm = 0.0
        self.value_loss = 0.0
        self.work = 0.0
        self.sums = dict.fromkeys(SUMS, 0.0)

    @torch.no_grad()
    def add(
        self, tokens: Tokens, clipped: Tensor, entropy: Tensor, masked: Tensor | None = None
    ) -> None:
        """Take in one micro-batch: its tokens, which of them were clipped (bool [M]), their entropy
        (nats, [M]), which of them a correction took out (bool [M], None: there is no
        correction)."""
        ratio = tokens.ratio().double()
        log_ratio = (tokens.logprobs - tokens.behaviour).double()
        surprise = -tokens.logprobs.double()
        large = ratio >= 1
        gains = tokens.advantages >= 0
        sums = {
            "ratio": ratio.sum(),
            "ratio_squares": (ratio * ratio).sum(),
            "ratio_max": ratio.max(),
            "low": (clipped & ~large).sum(),
            "high": (clipped & large & gains).sum(),
            "dual": (clipped & large & ~gains).sum(),
            "entropy": entropy.sum(),
            "nll": surprise.sum(),
        }
        if masked is not None:
            sums["masked"] = masked.sum()
            self.sums["correctable"] += masked.numel()
        for name, side in (("right", tokens.advantages > 0), ("wrong", tokens.advantages < 0)):
            sums[name] = side.sum()
            sums[f"{name}_nll"] = surprise[side].sum()
            sums[f"{name}_drift"] = log_ratio[side].sum()
        # An earlier mini-batch moves the policy, which is no mismatch of the two programs.
        if not self.steps:
            # k3 of KL(sampler || trainer): samples come from the sampler, so w = trainer / sampler.
            # In float64: the terms cancel to ~1e-10 when the two agree as they should.
            sums["mismatch"] = (torch.expm1(log_ratio) - log_ratio).sum()
            sums["mismatch_max"] = log_ratio.abs().max()
            self.sums["compared"] += ratio.numel()
        # one transfer from the device
        values = torch.stack([value.double() for value in sums.values()]).tolist()
        for name, value in zip(sums, values, strict=True):
            old = self.sums[name]
            # numpy's maximum, since Python's may lose a NaN
            self.sums[name] = (
                float(np.maximum(old, value)) if name.endswith("_max") else old + value
            )
        self.sums["tokens"] += ratio.numel()

    def add_kl(self, divergence: Tensor) -> None:
        """Take in the KL to the reference of some tokens, [M]."""
        self.sums["kl"] += float(divergence.detach().sum())
        self.sums["kl_tokens"] += divergence.numel()

    def add_values(self, values: Tensor, clipped: Tensor) -> None:
        """Take in the critic's values of some tokens [M], and which of them moved too far."""
        self.sums["values"] += float(values.detach().sum())
        self.sums["values_clipped"] += float(clipped.sum())
        self.sums["values_tokens"] += values.numel()

    def reduce(self, ranks: Ranks) -> None:
        """Put together what the ranks computed, on all of them."""
        (self.work,) = ranks.total([self.work])
        for suffix, together in (("", ranks.total), ("_max", ranks.most)):
            names = [name for name in SUMS if name.endswith("_max") is bool(suffix)]
            values = together([self.sums[name] for name in names])
            self.sums.update(zip(names, values, strict=True))

    def summary(self) -> Values:
        """Means by metric name. `ratio/samples` is the effective sample size (sum w)^2 / sum w^2
        (Kong 1992) as a share of the tokens, w their ratios."""
        sums = self.sums
        steps = max(self.steps, 1)
        tokens = max(sums["tokens"], 1)
        compared = max(sums["compared"], 1)
        samples = 1.0
        if sums["tokens"]:
            samples = sums["ratio"] ** 2 / (tokens * sums["ratio_squares"])
        clipped = ("low", "high", "dual")
        out = {
            "loss": self.loss / steps,
            "grad_norm": self.norm / steps,
            "ratio/mean": sums["ratio"] / tokens,
            "ratio/max": sums["ratio_max"],
            "ratio/samples": samples,
            "clip_fraction": sum(sums[name] for name in clipped) / tokens,
        }
        for name in clipped:
            out[f"clip_fraction/{name}"] = sums[name] / tokens
        out["entropy"] = sums["entropy"] / tokens
        out["nll"] = sums["nll"] / tokens
        out["logprob_mismatch/kl"] = sums["mismatch"] / compared
        out["logprob_mismatch/max"] = sums["mismatch_max"]
        if sums["correctable"]:
            out["correction/masked"] = sums["masked"] / sums["correctable"]
        for name in ("right", "wrong"):
            count = sums[name]
            if count:
                out[f"likelihood/{name}"] = math.exp(-sums[f"{name}_nll"] / count)
                out[f"likelihood/drift_{name}"] = sums[f"{name}_drift"] / count
        if sums["kl_tokens"]:
            out["kl/reference"] = sums["kl"] / sums["kl_tokens"]
        valued = sums["values_tokens"]
        if valued:
            out["value/loss"] = self.value_loss / steps
            out["value/mean"] = sums["values"] / valued
            out["value/clip_fraction"] = sums["values_clipped"] / valued
        return out


class Work:
    """Floating-point operations that a causal language model needs, without padding and
    recomputation: those of one token, forward and backward, in its `body` and its `head` (the
    output layer), and those of attention.

    A matrix product of an [a, b] weight costs 2ab a token forward, as much for the gradient of its
    input, and as much again for its own where it is trained (Kaplan et al. 2020, arXiv 2001.08361,
    section 2.1: 6N). Causal attention costs 2 width L^2 a layer and sequence of L tokens forward,
    and twice that backward."""

    def __init__(self, model: PreTrainedModel) -> None:
        output = model.get_output_embeddings()
        config = model.config
        self.head, self.head_back = _products(output)
        self.body = self.body_back = 0.0
        for layer in model.modules():
            if isinstance(layer, nn.Linear) and layer is not output:
                forward, backward = _products(layer)
                self.body += forward
                self.body_back += backward
        heads = config.num_attention_heads
        width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
        self.attention = 2.0 * width * config.num_hidden_layers

    def operations(
        self, lengths: Sequence[int], predicted: int, backward: bool, common: Sequence[int] = ()
    ) -> float:
        """Operations of sequences of `lengths` tokens, `predicted` of which go through the output
        layer; with or without backward. `common`: of each sequence that shares its beginning with
        an earlier one, how many tokens, which count once."""
        tokens = sum(lengths) - sum(common)
        squares = sum(length * length for length in lengths)
        squares -= sum(count * count for count in common)
        attention = self.attention * squares
        forward = self.body * tokens + self.head * predicted + attention
        if not backward:
            return forward
        return forward + self.body_back * tokens + self.head_back * predicted + 2 * attention


def _products(layer: nn.Linear) -> tuple[float, float]:
    """Operations of one token's products with the layer's weight: forward, backward."""
    forward = 2.0 * layer.in_features * layer.out_features
    return forward, forward * (1 + layer.weight.requires_grad)


@functools.cache
def matrix_rate(device: str, dtype: torch.dtype) -> float:
    """Operations a second of a large matrix product on `device`, the best of several, on the
    threads torch has now."""
    gpu = torch.device(device).type == "cuda"
    size = GPU_SIZE if gpu else CPU_SIZE
    matrix = torch.randn(size, size, device=device, dtype=dtype)
    multiply = products.times if products.fits(matrix) else torch.matmul
    best = float("inf")
    for _ in range(8):
        started = time.perf_counter()
        multiply(matrix, matrix)
        if gpu:
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - started)
    return 2.0 * size**3 / best
