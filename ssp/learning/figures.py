"""The figures of one update, summed over its micro-batches, and how much of the machine it uses.

Each is averaged over the tokens that were computed; a loss and a norm over the optimizer steps. All
of them describe the policy before the optimizer step that they belong to."""

import functools
import math
import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ssp.learning.backends.ranks import Ranks
from ssp.learning.losses import Tokens

CPU_SIZE, GPU_SIZE = 768, 8192
"""Side of the matrices of the probe: 0.9 GFLOP a product on a CPU, 1.1 TFLOP on a GPU."""


SUMS = (
    "tokens ratio ratio_squares ratio_max low high dual masked correctable entropy nll compared"
    " mismatch mismatch_max kl right right_nll right_drift wrong wrong_nll wrong_drift kl_tokens"
    " values values_clipped values_tokens"
).split()


class Figures:
    """Running sums and, of names that end in `_max`, maxima, so that ranks can put theirs together.

    `loss`, `norm`, `value_loss`: one for each of `steps` optimizer steps, summed; of the whole
    step, so every rank knows them. `work`: operations, see `Work`. `sums`: see `SUMS`; `low`,
    `high`, `dual`: tokens that were clipped because their ratio was small; large, with an advantage
    of at least 0; large, with a negative one. `masked`: tokens that a correction took out; `right`,
    `wrong`: with an advantage above, below 0."""

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
        large, gains = ratio >= 1, tokens.advantages >= 0
        # k3 of KL(sampler || trainer): samples come from the sampler, so w = trainer / sampler. In
        # float64: the terms cancel to ~1e-10 when the two agree as they should.
        found = {
            "ratio": ratio.sum(),
            "ratio_squares": (ratio * ratio).sum(),
            "ratio_max": ratio.max(),
            "low": (clipped & ~large).sum(),
            "high": (clipped & large & gains).sum(),
            "dual": (clipped & large & ~gains).sum(),
            **(
                {}
                if masked is None
                else {"masked": masked.sum(), "correctable": torch.ones_like(masked).sum()}
            ),
            "entropy": entropy.sum(),
            "nll": -tokens.logprobs.double().sum(),
            "mismatch": (torch.expm1(log_ratio) - log_ratio).sum(),
            "mismatch_max": log_ratio.abs().max(),
        }
        for name, of in (("right", tokens.advantages > 0), ("wrong", tokens.advantages < 0)):
            found |= {
                name: of.sum(),
                f"{name}_nll": -tokens.logprobs[of].double().sum(),
                f"{name}_drift": log_ratio[of].sum(),
            }
        # one transfer from the device
        values = torch.stack([value.double() for value in found.values()]).tolist()
        for name, value in zip(found, values, strict=True):
            if self.steps and name.startswith("mismatch"):
                # an earlier mini-batch has moved the policy, which is no mismatch of the two
                # programs
                continue
            old = self.sums[name]
            self.sums[name] = max(old, value) if name.endswith("_max") else old + value
        self.sums["tokens"] += ratio.numel()
        self.sums["compared"] += 0 if self.steps else ratio.numel()

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
        for most in (False, True):
            names = [name for name in SUMS if name.endswith("_max") is most]
            values = [self.sums[name] for name in names]
            self.sums.update(
                zip(names, ranks.most(values) if most else ranks.total(values), strict=True)
            )

    def summary(self) -> dict[str, float]:
        """Means by metric name. `ratio/samples` is the effective sample size (sum w)^2 / sum w^2
        (Kong 1992) as a share of the tokens, w their ratios."""
        sums, steps = self.sums, max(self.steps, 1)
        tokens, compared = max(sums["tokens"], 1), max(sums["compared"], 1)
        out = {
            "loss": self.loss / steps,
            "grad_norm": self.norm / steps,
            "ratio/mean": sums["ratio"] / tokens,
            "ratio/max": sums["ratio_max"],
            "ratio/samples": (
                sums["ratio"] ** 2 / (tokens * sums["ratio_squares"]) if sums["tokens"] else 1.0
            ),
            "clip_fraction": (sums["low"] + sums["high"] + sums["dual"]) / tokens,
            **{f"clip_fraction/{name}": sums[name] / tokens for name in ("low", "high", "dual")},
            "entropy": sums["entropy"] / tokens,
            "nll": sums["nll"] / tokens,
            "logprob_mismatch/kl": sums["mismatch"] / compared,
            "logprob_mismatch/max": sums["mismatch_max"],
        }
        if sums["correctable"]:
            out["correction/masked"] = sums["masked"] / sums["correctable"]
        for name in ("right", "wrong"):
            if count := sums[name]:
                out[f"likelihood/{name}"] = math.exp(-sums[f"{name}_nll"] / count)
                out[f"likelihood/drift_{name}"] = sums[f"{name}_drift"] / count
        if sums["kl_tokens"]:
            out["kl"] = sums["kl"] / sums["kl_tokens"]
        if valued := sums["values_tokens"]:
            out["value/loss"] = self.value_loss / steps
            out["value/mean"] = sums["values"] / valued
            out["value/clip_fraction"] = sums["values_clipped"] / valued
        return out


class Work:
    """Floating-point operations of one token of a causal language model, forward (`body`, `head`:
    the output layer) and backward, and of attention: what it needs, without padding and
    recomputation.

    A matrix product of an [a, b] weight costs 2ab a token forward, as much for the gradient of its
    input, and as much again for its own where it is trained (Kaplan et al. 2020, arXiv 2001.08361,
    section 2.1: 6N). Causal attention costs 2 width L^2 a layer and sequence of L tokens forward,
    and twice that backward."""

    def __init__(self, model: PreTrainedModel) -> None:
        output, config = model.get_output_embeddings(), model.config
        layers = [m for m in model.modules() if isinstance(m, nn.Linear) and m is not output]
        self.body, self.head = sum(map(_product, layers)), _product(output)
        self.body_back = sum(_product(layer) * (1 + layer.weight.requires_grad) for layer in layers)
        self.head_back = self.head * (1 + output.weight.requires_grad)
        heads = config.num_attention_heads
        width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
        self.attention = 2.0 * width * config.num_hidden_layers

    def operations(self, lengths: Sequence[int], predicted: int, backward: bool) -> float:
        """Of sequences of `lengths` tokens, `predicted` of them through the output layer; with or
        without backward."""
        tokens, squares = sum(lengths), float(sum(length * length for length in lengths))
        forward = self.body * tokens + self.head * predicted + self.attention * squares
        if not backward:
            return forward
        return (
            forward
            + self.body_back * tokens
            + self.head_back * predicted
            + 2 * self.attention * squares
        )


def _product(layer: nn.Linear) -> float:
    """Operations of one token's product with the layer's weight."""
    return 2.0 * layer.in_features * layer.out_features


@functools.cache
def matrix_rate(device: str, dtype: torch.dtype) -> float:
    """Operations a second of a large matrix product on `device`, the best of several, on the
    threads torch has now."""
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
