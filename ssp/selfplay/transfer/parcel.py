"""What travels: a parcel of published weights, and what both ends must know of each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Weights = dict[str, np.ndarray]
"""Hugging Face parameter names → arrays."""

OBJECT_STORE, BROADCAST, FOLDER = "object_store", "broadcast", "folder"
"""The arrays themselves, by reference where there is a cluster; torch.distributed; a model folder
(of the league)."""


@dataclass(frozen=True)
class Tensor:
    """Name, numpy dtype and shape of one tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Parcel:
    """One publication, the `serial`-th of its learner process. `payload`: the weights
    (object_store). `tensors`: what a broadcast will bring, in order. `path`: the folder that holds
    the weights."""

    kind: str
    serial: int
    nbytes: int
    payload: Any = None
    tensors: tuple[Tensor, ...] = ()
    path: str = ""


@dataclass(frozen=True)
class Place:
    """Where a process is: its node's address, and the id of the device whose memory gives or takes
    weights ("" = none)."""

    host: str
    gpu: str = ""


def here(host: str, gpu: bool = False) -> Place:
    """This process's place; `gpu`: whether it computes on one."""
    if not gpu:
        return Place(host)
    import torch

    return Place(host, str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid))


def size(weights: Mapping[str, np.ndarray]) -> int:
    """Bytes of all tensors."""
    return sum(array.nbytes for array in weights.values())
