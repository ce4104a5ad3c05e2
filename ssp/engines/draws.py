"""Random numbers and sampling of the torch engine."""

from __future__ import annotations

import numpy as np
import torch

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(z: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniforms(seeds: np.ndarray, starts: np.ndarray, count: int) -> torch.Tensor:
    """Numbers `starts[i] .. starts[i]+count-1` of each seed's stream, in [0, 1): float32 [count, n].

    `seeds` uint64 [n], `starts` int64 [n]. 24 random bits each, so that float32 holds them exactly.
    """
    base = _mix(seeds + _GOLDEN)
    index = starts.astype(np.uint64)[None, :] + np.arange(1, count + 1, dtype=np.uint64)[:, None]
    bits = _mix(base[None, :] + index * _GOLDEN) >> np.uint64(40)
    return torch.from_numpy(bits.astype(np.float32) * np.float32(2.0**-24))


def draw(
    logits: torch.Tensor, temperature: float | torch.Tensor, uniform: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids int64 [n] and their log-probs float32 [n] from logits float32 [n, V] and uniforms [n].

    Temperature (one for all, or float32 [n, 1]) above 0: inverse CDF of softmax(logits / temperature). 0: argmax, log-prob
    at temperature 1.
    """
    logits = _tempered(logits, temperature)
    top, best = logits.max(dim=-1, keepdim=True)
    weights = (logits - top).exp_()
    cumulative = weights.cumsum(dim=-1)
    total = cumulative[:, -1:]
    if not isinstance(temperature, torch.Tensor) and temperature == 0.0:
        ids = best
    else:
        # strictly below the total, so that a token of weight 0 can never be hit, at the end of the row either
        point = torch.minimum(uniform[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
        # clamped only for logits that are not numbers, which the log-prob then shows
        ids = torch.searchsorted(cumulative, point, right=True).clamp_(max=logits.shape[-1] - 1)
        if isinstance(temperature, torch.Tensor):
            ids = torch.where(temperature == 0.0, best, ids)
    logprobs = logits.gather(1, ids) - top - total.log()
    return ids[:, 0], logprobs[:, 0]


def entropy(logits: torch.Tensor, temperature: float | torch.Tensor) -> torch.Tensor:
    """Entropy in nats, float32 [n], of the distribution that `draw` gives log-probs of; logits float32 [n, V]."""
    logprobs = torch.log_softmax(_tempered(logits, temperature), dim=-1)
    return -(logprobs.exp() * logprobs).sum(dim=-1)


def _tempered(logits: torch.Tensor, temperature: float | torch.Tensor) -> torch.Tensor:
    if isinstance(temperature, torch.Tensor):
        return logits / torch.where(temperature == 0.0, 1.0, temperature)
    return logits if temperature in (0.0, 1.0) else logits / temperature
