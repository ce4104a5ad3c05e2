"""The learner's end of transfer: weights in, parcels out."""

import socket
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from ssp.base.errors import Fault, InvariantError
from ssp.selfplay.transfer.broadcast import Call, Group
from ssp.selfplay.transfer.parcel import OBJECT_STORE, Parcel, Place, Tensor, Weights, here, size


class Publisher:
    """What a worker inherits that publishes."""

    _kind = ""
    _held: deque[tuple[int, Weights]]
    _socket: socket.socket | None = None
    _group: Group | None = None
    serial = -1

    def exported(self) -> Weights:
        """The weights as they are now."""
        raise NotImplementedError

    def on_gpu(self) -> bool:
        """Whether the weights are on a GPU."""
        return False

    def host(self) -> str:
        """The address at which the other processes of the run reach this one."""
        return "127.0.0.1"

    def place(self) -> Place:
        """Where this process is."""
        return here(self.host(), self.on_gpu())

    def publish_by(self, kind: str, keep: int) -> None:
        """Publish by this kind from now on. Of broadcasts the newest `keep` can be had `again`: one
        a version that may still be played, and one spare."""
        self.leave()
        self._kind, self.serial, self._held = kind, -1, deque(maxlen=keep)

    def weights(self) -> tuple[Parcel, dict[str, float]]:
        """A publication of the current weights, and its figures."""
        return self.pack(self.exported())

    def pack(self, weights: Weights) -> tuple[Parcel, dict[str, float]]:
        """Publish `weights`: the parcel, and its serial, bytes and seconds."""
        if not self._kind:
            raise InvariantError("a learner is told how to publish before it does")
        began = time.perf_counter()
        self.serial += 1
        parcel = self._parcel(self._kind, self.serial, weights)
        seconds = time.perf_counter() - began
        return parcel, {
            "serial": float(self.serial),
            "sync/bytes": float(parcel.nbytes),
            "time/sync_pack": seconds,
        }

    def again(self, serial: int) -> tuple[Parcel, dict[str, float]]:
        """An earlier publication once more, its arrays in the parcel itself, for an engine that
        missed it. Fault `weights_gone` when this process has it no more."""
        return self._again(serial, self.exported)

    def _again(self, serial: int, newest: Callable[[], Weights]) -> tuple[Parcel, dict[str, float]]:
        held = dict(self._held) if self._kind else {}
        if not self._kind or (serial != self.serial and serial not in held):
            raise Fault(
                "weights_gone", f"publication {serial}: this learner's process is at {self.serial}"
            )
        weights = held[serial] if serial in held else newest()
        return self._parcel(OBJECT_STORE, serial, weights), {"sync/bytes": float(size(weights))}

    def _parcel(self, kind: str, serial: int, weights: Weights) -> Parcel:
        if odd := [name for name, array in weights.items() if not isinstance(array, np.ndarray)]:
            raise InvariantError(f"weights travel as numpy arrays: {odd[0]} is none")
        if kind == OBJECT_STORE:
            return Parcel(kind, serial, size(weights), payload=weights)
        self._held.append((serial, weights))
        tensors = tuple(
            Tensor(name, array.dtype.str, array.shape) for name, array in weights.items()
        )
        return Parcel(kind, serial, size(weights), tensors=tensors)

    def listen(self, host: str) -> int:
        """Open the port at `host` at which a group of receivers will meet; a group that there was
        ends."""
        self.leave()
        self._socket = socket.create_server((host, 0), backlog=64)
        return int(self._socket.getsockname()[1])

    def join(self, call: Call, host: str) -> None:
        """Wait until the group's members are there. Fault `broadcast_failed`."""
        assert self._socket is not None
        opened, self._socket = self._socket, None
        self._group = Group(call, 0, host, opened)

    def send(self, serial: int) -> float:
        """Broadcast a publication; seconds. Fault `broadcast_failed`."""
        began = time.perf_counter()
        if self._group is None:
            raise InvariantError("there is no group to send to")
        self._group.send(dict(self._held)[serial])
        return time.perf_counter() - began

    def leave(self) -> None:
        """End the group."""
        for opened in (self._socket, self._group):
            if opened is not None:
                opened.close()
        self._socket = self._group = None
