"""The learner's end: weights in, parcels out.

Owns what has to stay for a parcel to be of use (files, copies) and gives it up when enough newer ones
exist. Promises one serial number a publication, and that what it shared is gone after `close`. Refuses to know versions.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ssp.base.errors import Fault, InvariantError
from ssp.selfplay.transfer.broadcast import Call, Group, listen
from ssp.selfplay.transfer.digest import digests
from ssp.selfplay.transfer.files import DiskShelf, MemoryShelf
from ssp.selfplay.transfer.parcel import BROADCAST, DISK, OBJECT_STORE, SHM, Parcel, Plan, Weights, describe, size


class Outbox:
    """Publishes by one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self.serial = plan, -1
        self._shelf: MemoryShelf | DiskShelf | None = None
        if plan.kind == SHM:
            self._shelf = MemoryShelf(plan.run, plan.role, plan.keep)
        elif plan.kind == DISK:
            self._shelf = DiskShelf(Path(plan.folder), plan.role, plan.keep)
        self._held: deque[tuple[int, Any]] = deque(maxlen=plan.keep)  # what must outlive its parcel
        self._socket: socket.socket | None = None
        self._group: Group | None = None

    def pack(self, weights: Weights) -> tuple[Parcel, dict[str, float]]:
        """Publish `weights`: the parcel, and its serial, bytes and seconds."""
        began = time.perf_counter()
        self.serial += 1
        parcel = self._parcel(self._plan.kind, self.serial, weights)
        return parcel, {
            "serial": float(self.serial),
            "sync/bytes": float(parcel.nbytes),
            "time/sync_pack": time.perf_counter() - began,
        }

    def again(self, serial: int, newest: Callable[[], Weights]) -> tuple[Parcel, dict[str, float]]:
        """A publication once more, its arrays in the parcel itself, for an engine that missed it; `newest` gives the
        weights of the last one. Fault `weights_gone` when it is too old."""
        held: dict[int, Any] = dict(self._held) if self._plan.kind == BROADCAST else {}
        if serial != self.serial and serial not in held:
            raise Fault("weights_gone", f"publication {serial}: the learner is at {self.serial}")
        weights = held[serial] if serial in held else newest()
        return self._parcel(OBJECT_STORE, serial, weights), {"sync/bytes": float(size(weights))}

    def _parcel(self, kind: str, serial: int, weights: Weights) -> Parcel:
        odd = [name for name, array in weights.items() if not isinstance(array, np.ndarray)]
        if odd:
            raise InvariantError(f"weights travel as numpy arrays: {odd[0]} is none")
        found = digests(weights) if self._plan.verify or kind == DISK else None
        parcel: dict[str, Any] = {"kind": kind, "serial": serial, "nbytes": size(weights), "digests": found}
        if kind == OBJECT_STORE:
            return Parcel(**parcel, payload=weights)
        if kind == BROADCAST:
            self._held.append((serial, weights))
            return Parcel(**parcel, tensors=describe(weights))
        assert self._shelf is not None
        return Parcel(**parcel, path=str(self._shelf.put(serial, weights)))

    def listen(self, host: str) -> int:
        """Open the port at which a group of receivers will meet; a group that there was ends."""
        self.leave()
        self._socket = listen(host)
        return int(self._socket.getsockname()[1])

    def join(self, call: Call, host: str) -> None:
        """Wait for the members. Fault `broadcast_failed`."""
        assert self._socket is not None
        opened, self._socket = self._socket, None
        self._group = Group(call, 0, host, opened)

    def send(self, serial: int) -> float:
        """Broadcast one publication; seconds. Fault `broadcast_failed`."""
        began = time.perf_counter()
        if self._group is None:
            raise InvariantError("there is no group to send to")
        self._group.send(dict(self._held)[serial])
        return time.perf_counter() - began

    def leave(self) -> None:
        """End the group."""
        if self._socket is not None:
            self._socket.close()
        if self._group is not None:
            self._group.close()
        self._socket = self._group = None

    def close(self) -> None:
        """Give up everything that was shared."""
        self.leave()
        self._held.clear()
        if self._shelf is not None:
            self._shelf.close()
