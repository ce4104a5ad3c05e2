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


def check_loaded(weights: Mapping[str, np.ndarray], held: Mapping[str, np.ndarray], dtype: str, who: str) -> None:
    """WeightsDiffer unless `held`, read back from an engine with weights in `dtype`, is `weights` rounded to it."""
    for name, array in weights.items():
        if name not in held:
            raise WeightsDiffer(f"{who}: the engine has no {name}")
        mine, wanted = np.asarray(held[name], np.float32), rounded(array, dtype)
        if mine.shape != wanted.shape or not np.array_equal(mine.view(np.uint32), wanted.view(np.uint32)):
            raise WeightsDiffer(f"{who}: the engine's {name} is not what it was handed")


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """`array` in float32 with the precision of `dtype` (float32, bfloat16, float16), to nearest, ties to even."""
    wide = np.ascontiguousarray(array, np.float32)
    if dtype == "float16":
        return wide.astype(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        bits = wide.view(np.uint32)
        return ((bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) & np.uint32(0xFFFF0000)).view(np.float32)
    return wide
