"""What travels: a parcel of published weights, what both ends must know of each other, and whether it arrived as sent."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ssp.base.errors import SspError
from ssp.base.shared import SHARED_MEMORY

Weights = dict[str, np.ndarray]
"""Hugging Face parameter names → arrays."""

OBJECT_STORE, SHM, DISK, BROADCAST = KINDS = ("object_store", "shm", "disk", "broadcast")
"""The arrays themselves, by reference where there is a cluster; one file (shm, disk); torch.distributed."""


@dataclass(frozen=True)
class Tensor:
    """Name, numpy dtype and shape of one tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Parcel:
    """One publication, the `serial`-th of its learner process. `payload`: the weights (object_store). `path`: the file (shm,
    disk). `tensors`: what a broadcast will bring, in order. `digests`: of each tensor as sent, where they are compared."""

    kind: str
    serial: int
    nbytes: int
    payload: Any = None
    path: str = ""
    tensors: tuple[Tensor, ...] = ()
    digests: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Plan:
    """How a learner publishes: kind, names for its files, the run's folder, how many publications stay (one a version that
    may still be played, and one spare), whether digests go along."""

    kind: str
    run: str
    role: str
    folder: str
    keep: int
    verify: bool


@dataclass(frozen=True)
class Place:
    """Where a process is: `memory` is alike for processes that share /dev/shm, `host` is its node's address, `gpu` the id of
    the device in whose memory it gives or takes weights ("" = none). `nbytes`: of a learner, its weights."""

    memory: str
    host: str
    gpu: str = ""
    nbytes: int = 0


def here(host: str, gpu: bool = False, nbytes: int = 0) -> Place:
    """This process's place; `gpu`: whether it computes on one."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        memory = f"{boot}/{os.stat(SHARED_MEMORY).st_dev}"
    except OSError:  # not Linux: each host for itself, and no /dev/shm
        memory = socket.gethostname()
    device = ""
    if gpu:
        import torch

        device = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    return Place(memory, host, device, nbytes)


def size(weights: Mapping[str, np.ndarray]) -> int:
    """Bytes of all tensors."""
    return sum(array.nbytes for array in weights.values())


class WeightsDiffer(SspError):
    """Weights are not what the learner sent. Nothing may be played with them."""


def digests(weights: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of each tensor, also of one on a GPU: its dtype, shape and bytes (about 1.5 GB/s a core)."""
    found = {}
    for name, tensor in weights.items():
        array = tensor if isinstance(tensor, np.ndarray) else tensor.cpu().numpy()
        sha = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
        sha.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        found[name] = sha.hexdigest()
    return found


def check_arrived(sent: Mapping[str, str], weights: Mapping[str, Any], who: str) -> None:
    """WeightsDiffer unless each tensor has the digest it was sent with. `who`: role and version, for the message."""
    found = digests(weights)
    for name in sorted({*sent, *found}):
        if sent.get(name) != found.get(name):
            raise WeightsDiffer(f"{who}: {name} did not arrive as it was sent")
