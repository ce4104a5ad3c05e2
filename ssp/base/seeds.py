"""Every random draw of a run comes from here (law 7)."""

import hashlib

import numpy as np


def derive(seed: int, *labels: object) -> int:
    """A 63-bit seed for `labels` (strings and integers), e.g. `derive(seed, "solver", game,
    attempt)`."""
    text = repr((int(seed), *[str(label) for label in labels]))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *labels: object) -> np.random.Generator:
    """A numpy generator for `labels`; counter-based (Philox), so making one is cheap."""
    return np.random.Generator(np.random.Philox(key=derive(seed, *labels)))
