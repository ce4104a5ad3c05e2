"""Where a process computes: `engine.device`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssp.base.errors import InputError

if TYPE_CHECKING:
    import torch


def find(asked: str) -> torch.device:
    """cpu; cuda, the first GPU that this process sees (an actor sees those that it was given); or auto: a GPU where it sees
    one. InputError for cuda where it sees none."""
    import torch  # costs what ledgers and shards start without

    seen = torch.cuda.is_available()
    if asked == "cuda" and not seen:
        rule = "engine.device=cuda needs a GPU that torch sees"
        raise InputError(
            rule, f"none, by torch {torch.__version__}", "set engine.device=auto, or install torch for CUDA"
        )
    return torch.device(("cuda" if seen else "cpu") if asked == "auto" else asked)
