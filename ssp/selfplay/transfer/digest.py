"""Whether weights arrived as they were sent, and whether an engine has what it was handed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from ssp.base.errors import SspError


class WeightsDiffer(SspError):
    """Weights are not what the learner sent. Nothing may be played with them."""


def digests(weights: Mapping[str, np.ndarray]) -> dict[str, str]:
    """SHA-256 of each tensor: its dtype, shape and bytes (about 1.5 GB/s a core)."""
    found = {}
    for name, array in weights.items():
        sha = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
        sha.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        found[name] = sha.hexdigest()
    return found


def check_arrived(sent: Mapping[str, str], weights: Mapping[str, np.ndarray], who: str) -> None:
    """WeightsDiffer unless each tensor has the digest it was sent with. `who`: role and version, for the message."""
    if set(sent) != set(weights):
        odd = sorted(set(sent) ^ set(weights))
        raise WeightsDiffer(f"{who}: other tensors arrived than were sent: {', '.join(odd[:5])}")
    for name, digest in digests(weights).items():
        if digest != sent[name]:
            raise WeightsDiffer(f"{who}: {name} did not arrive as it was sent")
