"""Figures of an update against numpy on the same tokens, and what they cost."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ssp.learning.figures import Figures
from ssp.learning.losses import LossOptions, Tokens, ppo_clip


def tokens(n: int, spread: float, seed: int = 0) -> Tokens:
    gen = torch.Generator().manual_seed(seed)
    behaviour = -torch.rand(n, generator=gen)
    advantages = torch.randn(n, generator=gen)
    return Tokens(
        behaviour + spread * torch.randn(n, generator=gen), behaviour, advantages, torch.zeros(n, dtype=torch.long)
    )


def add(figures: Figures, made: Tokens, dual: float = 0.0) -> None:
    _, clipped = ppo_clip(made, LossOptions(0.2, 0.2, clip_dual=dual))
    figures.add(made, clipped, torch.ones_like(made.logprobs))


@pytest.mark.covers("SR-13")
@pytest.mark.parametrize("parts", [1, 7])
def test_against_numpy_whatever_the_split(parts: int) -> None:
    made, figures = tokens(7000, 0.4), Figures()
    for part in range(parts):
        rows = slice(part * 7000 // parts, (part + 1) * 7000 // parts)
        add(figures, Tokens(*(getattr(made, f)[rows] for f in ("logprobs", "behaviour", "advantages", "rows"))), 3.0)
    figures.steps = 1
    log = (made.logprobs - made.behaviour).double().numpy()
    w, gain = np.exp(log), made.advantages.numpy() >= 0
    got = figures.summary()
    assert got["ratio/mean"] == pytest.approx(w.mean(), rel=1e-5)
    assert got["ratio/samples"] == pytest.approx(w.sum() ** 2 / (len(w) * (w**2).sum()), rel=1e-5)
    assert got["clip_fraction/low"] == pytest.approx(np.mean((w < 0.8) & ~gain))
    assert got["clip_fraction/high"] == pytest.approx(np.mean((w > 1.2) & gain))
    assert got["clip_fraction/dual"] == pytest.approx(np.mean((w > 3.0) & ~gain)) and got["clip_fraction/dual"] > 0
    shares = [got[f"clip_fraction/{name}"] for name in ("low", "high", "dual")]
    assert got["clip_fraction"] == pytest.approx(sum(shares))
    assert got["logprob_mismatch/max"] == pytest.approx(abs(log).max())
    for name, of in (("right", made.advantages.numpy() > 0), ("wrong", made.advantages.numpy() < 0)):
        assert got[f"likelihood/{name}"] == pytest.approx(np.exp(made.logprobs.double().numpy()[of].mean()))
        assert got[f"likelihood/drift_{name}"] == pytest.approx(log[of].mean())


def test_equal_programs_have_no_mismatch_and_all_samples() -> None:
    figures = Figures()
    add(figures, tokens(100, 0.0))
    got = figures.summary()
    assert [got[f"logprob_mismatch/{name}"] for name in ("kl", "max")] == [0.0, 0.0]
    assert got["ratio/samples"] == pytest.approx(1.0)


def test_a_later_mini_batch_is_no_mismatch() -> None:
    figures = Figures()
    add(figures, tokens(100, 0.0))
    figures.steps = 1
    add(figures, tokens(100, 1.0))
    got = figures.summary()
    assert got["logprob_mismatch/max"] == 0.0 and got["ratio/samples"] < 0.9


def test_masked_share_and_an_update_without_tokens() -> None:
    figures, made = Figures(), tokens(10, 0.1)
    masked = torch.arange(10) < 3
    figures.add(made, torch.zeros(10, dtype=torch.bool), torch.ones(10), masked)
    assert figures.summary()["correction/masked"] == pytest.approx(0.3)
    empty = Figures().summary()
    assert empty["ratio/samples"] == 1.0 and all(np.isfinite(list(empty.values())))
