"""One sender, many receivers: weights over a process group of torch.distributed, gloo between CPUs,
NCCL between GPUs (which has never been run). Not the default group, which belongs to the learner's
ranks. Every wait ends within its deadline; after a failure, the Fault `broadcast_failed`, the group
is of no use and is formed anew."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np

from ssp.base.errors import Fault
from ssp.selfplay.transfer.parcel import Tensor

FAILED = "broadcast_failed"


@dataclass(frozen=True)
class Call:
    """The sender's address, the group's size with it (rank 0), whether over NCCL, and how long one
    wait may take."""

    host: str
    port: int
    size: int
    gpu: bool
    seconds: float


class Group:
    """One process's part of a group. Rank 0 gives the socket that `call` names."""

    def __init__(
        self, call: Call, rank: int, host: str, opened: socket.socket | None = None
    ) -> None:
        # Here, because ledgers and shards import this room's records and should start without
        # torch.
        import torch
        import torch.distributed as dist

        self._dist, self._seconds = dist, timedelta(seconds=call.seconds)
        self._device = "cuda" if call.gpu else "cpu"
        with _faults("forming the group"):
            fd = None if opened is None else opened.detach()
            store: Any = dist.TCPStore(
                call.host,
                call.port,
                call.size,
                rank == 0,
                self._seconds,
                wait_for_workers=False,
                master_listen_fd=fd,
            )
            self._store = store  # of the sender's: it serves as long as it is kept
            if call.gpu:
                options = dist.ProcessGroupNCCL.Options()
                options._timeout = self._seconds
                self._group: Any = dist.ProcessGroupNCCL(store, rank, call.size, options)
            else:
                gloo: Any = dist.ProcessGroupGloo
                options = gloo._Options()
                options._timeout = self._seconds
                options._devices = [gloo.create_device(hostname=host)]
                self._group = gloo(store, rank, call.size, options)
            # so that a group which stands has all its members
            self._one(torch.zeros(1, device=self._device))

    def send(self, weights: Mapping[str, np.ndarray]) -> None:
        """Send every tensor, in order. Fault `broadcast_failed`."""
        import torch

        with _faults("sending"):
            for array in weights.values():
                # contiguous, and writable: torch warns of arrays that it might write to
                self._one(
                    torch.from_numpy(np.require(array, requirements=["C", "W"])).to(self._device)
                )

    def receive(self, tensors: Sequence[Tensor]) -> dict[str, Any]:
        """The sender's next weights, like `tensors`: arrays, from GPUs tensors there. Fault
        `broadcast_failed`."""
        import torch

        weights: dict[str, Any] = {}
        with _faults("receiving"):
            for tensor in tensors:
                array = np.empty(tensor.shape, tensor.dtype)
                there = torch.from_numpy(array).to(self._device)
                self._one(there)
                weights[tensor.name] = array if self._device == "cpu" else there
        return weights

    def _one(self, tensor: Any) -> None:
        options = self._dist.BroadcastOptions()
        options.rootRank = options.rootTensor = 0
        options.timeout = self._seconds
        if not self._group.broadcast([tensor], options).wait(self._seconds):
            raise RuntimeError(f"not done within {self._seconds.total_seconds():g} s")

    def close(self) -> None:
        """Leave. Who still waits in this group gets a fault."""
        with suppress(Exception):  # a group that failed may not even end well
            self._group.abort()
        self._group = self._store = None


@contextmanager
def _faults(doing: str) -> Iterator[None]:
    """Torch's exceptions of distributed work (all RuntimeErrors) as the one Fault."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        raise Fault(FAILED, f"{doing}: {str(error).splitlines()[0][:200]}") from error
