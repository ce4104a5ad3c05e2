"""The processes that share one learner's updates, the few things that they must agree on, and how
rows are dealt out.

Sums and decisions are the same on every rank, and the deal is a pure function of the lengths (law
7)."""

import os
import socket
from collections.abc import Callable, Sequence
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
        self.rank = rank
        self.world = world

    def total(self, values: Sequence[float]) -> list[float]:
        """Sums over the ranks, in float64."""
        return self._gathered(values).sum(0).tolist()

    def most(self, values: Sequence[float]) -> list[float]:
        """Largest over the ranks, in float64; NaN where one of them is."""
        return self._gathered(values).amax(0).tolist()

    def sum_(self, tensor: Tensor) -> None:
        """Replace the tensor by its sum over the ranks."""
        if self.world > 1:
            dist.all_reduce(tensor)

    def agree(self, make: Callable[[], T]) -> T:
        """What `make` gives on rank 0, on every rank; its exception too."""
        if self.world == 1:
            return make()
        outcome: list[Any] = [None, None]
        if self.rank == 0:
            try:
                outcome[0] = make()
            except Exception as error:
                outcome[1] = error
        dist.broadcast_object_list(outcome, src=0, device=torch.device("cpu"))
        made, failure = outcome
        if failure is not None:
            raise failure
        return made  # type: ignore[no-any-return]

    def _gathered(self, values: Sequence[float]) -> Tensor:
        """float64 [world, values]: those of every rank."""
        mine = torch.tensor(values, dtype=torch.float64)
        if self.world == 1:
            return mine[None]
        every = [torch.empty_like(mine) for _ in range(self.world)]
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
    """The rows of each rank, in the order of `rows`. They are dealt longest first, each to the rank
    with the fewest tokens so far."""
    sizes = row_lengths[rows]
    tokens = [0] * world
    owner = torch.zeros(len(rows), dtype=torch.long)
    for place in torch.sort(sizes, descending=True, stable=True).indices.tolist():
        rank = tokens.index(min(tokens))
        tokens[rank] += int(sizes[place])
        owner[place] = rank
    return [rows[owner == rank] for rank in range(world)]
