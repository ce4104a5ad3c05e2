"""The processes that share one learner's updates, the few things that they must agree on, and how
rows are dealt out.

Sums and decisions are the same on every rank, and the deal is a pure function of the lengths (law
7)."""

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")

LOOPBACK = "127.0.0.1"


class Ranks:
    """Rank `rank` of the `world` ranks of this process's torch.distributed group (gloo between
    CPUs, nccl between GPUs); one rank needs none. Every method is collective: all ranks call it, in
    the same order."""

    def __init__(self, rank: int = 0, world: int = 1) -> None:
        self.rank, self.world = rank, world

    def total(self, values: Sequence[float]) -> list[float]:
        """Sums over the ranks, in float64."""
        return self._gathered(values).sum(0).tolist()

    def most(self, values: Sequence[float]) -> list[float]:
        """Largest over the ranks, in float64; NaN where one of them is."""
        return self._gathered(values).amax(0).tolist()

    def sum_(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over the ranks."""
        for tensor in tensors if self.world > 1 else ():
            dist.all_reduce(tensor)

    def agree(self, make: Callable[[], T]) -> T:
        """What `make` gives on rank 0, on every rank; its exception too."""
        if self.world == 1:
            return make()
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

    def _gathered(self, values: Sequence[float]) -> Tensor:
        """[world, values]."""
        mine = torch.tensor(list(values), dtype=torch.float64)
        every = [torch.empty_like(mine) for _ in range(self.world)] if self.world > 1 else [mine]
        if self.world > 1:
            dist.all_gather(every, mine)
        return torch.stack(every)


SOLO = Ranks()


def join(
    rank: int, world: int, address: tuple[str, int], seconds: float, listener: socket.socket | None
) -> Ranks:
    """Form the group whose rank 0 listens at `address`, with the socket that it opened; returns
    when all are there.

    A collective that takes longer than `seconds`, or whose peer died, raises."""
    host, port = address
    if host == LOOPBACK:
        # gloo listens too, and else at the address of the machine's name
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    limit = timedelta(seconds=seconds)
    handle = None if listener is None else listener.detach()
    store = dist.TCPStore(host, port, world, rank == 0, timeout=limit, master_listen_fd=handle)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=limit)
    return Ranks(rank, world)


def deal(row_lengths: Tensor, rows: Tensor, world: int) -> list[Tensor]:
    """The rows of each rank: longest first, each to the rank with the fewest tokens so far; in the
    order of `rows`."""
    tokens, owner = [0] * world, torch.zeros(len(rows), dtype=torch.long)
    for place in torch.sort(row_lengths[rows], descending=True, stable=True).indices.tolist():
        rank = tokens.index(min(tokens))
        tokens[rank] += int(row_lengths[rows[place]])
        owner[place] = rank
    return [rows[owner == rank] for rank in range(world)]
