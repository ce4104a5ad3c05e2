"""What every actor process does first, and what proves that it lives."""

from __future__ import annotations

import os
from typing import Any


class Alive:
    """Mix-in with the liveness probe that supervision calls."""

    def ping(self) -> int:
        """Process id."""
        return os.getpid()


class Calm(Alive):
    """Mix-in before a worker that computes: one thread. Actors share cores, and two OpenMP pools on one core make each
    other many times slower."""

    def __init__(self, *args: Any) -> None:
        import torch

        torch.set_num_threads(1)
        super().__init__(*args)
