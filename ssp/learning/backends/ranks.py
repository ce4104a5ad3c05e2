"""The processes that share one learner's updates: who they are, and the few things that they must agree on.

Owns the process group, and how rows are dealt out. Promises that sums and decisions are the same on every rank, that the
deal is a pure function of the lengths (law 7), and that a group of one costs nothing. Refuses to know models and losses.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")

LOOPBACK = "127.0.0.1"


class Ranks(Protocol):
    """Rank `rank` of `world`. Every method is collective: all ranks call it, in the same order."""

    rank: int
    world: int

    def total(self, values: Sequence[float]) -> list[float]:
        """Sums over the ranks, in float64."""
        ...

    def most(self, values: Sequence[float]) -> list[float]:
        """Largest over the ranks, in float64; NaN where one of them is."""
        ...

    def sum_(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over the ranks."""
        ...

    def agree(self, make: Callable[[], T]) -> T:
        """What `make` gives on rank 0, on every rank; its exception too."""
        ...


class Solo:
    """One process: there is nobody to agree with."""

    rank, world = 0, 1

    def total(self, values: Sequence[float]) -> list[float]:
        """The values themselves."""
        return list(values)

    def most(self, values: Sequence[float]) -> list[float]:
        """The values themselves."""
        return list(values)

    def sum_(self, tensors: Iterable[Tensor]) -> None:
        """They are the sums already."""

    def agree(self, make: Callable[[], T]) -> T:
        """What it gives."""
        return make()


class Group:
    """Ranks of this process's torch.distributed group: gloo between CPUs, nccl between GPUs."""

    def __init__(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def total(self, values: Sequence[float]) -> list[float]:
        """See `Ranks`."""
        found = torch.tensor(list(values), dtype=torch.float64)
        dist.all_reduce(found)
        return found.tolist()

    def most(self, values: Sequence[float]) -> list[float]:
        """See `Ranks`."""
        found = torch.tensor(list(values), dtype=torch.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return [
            most if nan == 0 else float("nan") for most, nan in zip(found.tolist(), self._nans(values), strict=True)
        ]

    def sum_(self, tensors: Iterable[Tensor]) -> None:
        """See `Ranks`."""
        for tensor in tensors:
            dist.all_reduce(tensor)

    def agree(self, make: Callable[[], T]) -> T:
        """See `Ranks`."""
        found: list[Any] = [None, None]
        if self.rank == 0:
            try:
                found[0] = make()
            except Exception as error:
                found[1] = error
        dist.broadcast_object_list(found, src=0, device=torch.device("cpu"))
        if found[1] is not None:
            raise found[1]
        return found[0]  # type: ignore[no-any-return]

    def _nans(self, values: Sequence[float]) -> list[float]:
        return self.total([float(value != value) for value in values])


SOLO = Solo()


def device() -> torch.device:
    """Where this process computes: the GPU that it was given, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def listen(host: str = LOOPBACK) -> socket.socket:
    """A listening socket at a free port of `host`, for rank 0 of a group to be."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((host, 0))
    listener.listen()
    return listener


def join(rank: int, world: int, address: tuple[str, int], seconds: float, listener: socket.socket | None) -> Group:
    """Form the group whose rank 0 listens at `address`, with the socket that it opened; returns when all are there.

    A collective that takes longer than `seconds`, or whose peer died, raises.
    """
    host, port = address
    if host == LOOPBACK:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # gloo listens too, and else at the address of the machine's name
    limit = timedelta(seconds=seconds)
    handle = None if listener is None else listener.detach()
    store = dist.TCPStore(host, port, world, rank == 0, timeout=limit, master_listen_fd=handle)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=limit)
    return Group()


def deal(row_lengths: Tensor, rows: Tensor, world: int) -> list[Tensor]:
    """The rows of each rank: longest first, each to the rank with the fewest tokens so far; in the order of `rows`."""
    if world == 1:
        return [rows]
    tokens, owner = [0] * world, torch.zeros(len(rows), dtype=torch.long)
    for place in torch.sort(row_lengths[rows], descending=True, stable=True).indices.tolist():
        rank = tokens.index(min(tokens))
        tokens[rank] += int(row_lengths[rows[place]])
        owner[place] = rank
    return [rows[owner == rank] for rank in range(world)]
