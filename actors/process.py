"""What every actor process does first, and what proves that it lives."""

from __future__ import annotations

import os


def calm() -> None:
    """One compute thread: actors share cores, and two OpenMP pools on one core make each other many times slower."""
    import torch

    torch.set_num_threads(1)


class Alive:
    """Mix-in with the liveness probe that supervision calls."""

    def ping(self) -> int:
        """Process id."""
        return os.getpid()
