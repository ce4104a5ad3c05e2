"""What travels from a learner to engines: a parcel of published weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Weights = dict[str, np.ndarray]
"""Hugging Face parameter names → arrays."""


@dataclass(frozen=True)
class Parcel:
    """One publication: the arrays as `payload`, which pass by reference on a cluster, or the `path`
    of the model folder that holds them (a member of the league)."""

    payload: Any = None
    path: str = ""


def size(weights: Mapping[str, np.ndarray]) -> int:
    """Bytes of all tensors."""
    return sum(array.nbytes for array in weights.values())
