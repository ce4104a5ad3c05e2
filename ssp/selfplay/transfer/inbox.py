"""The engine's end: parcels in, weights out."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Any

from ssp.base.errors import Fault
from ssp.selfplay.transfer import flat
from ssp.selfplay.transfer.broadcast import Call, Group
from ssp.selfplay.transfer.digest import check_arrived
from ssp.selfplay.transfer.parcel import BROADCAST, OBJECT_STORE, Parcel, on_host


class Inbox:
    """Opens parcels of one role. `keep`: broadcast versions that may still be asked for."""

    def __init__(self, role: str, keep: int) -> None:
        self._role = role
        self._arrived: deque[tuple[int, dict[str, Any]]] = deque(maxlen=keep)
        self._group: Group | None = None

    def open(self, version: int, parcel: Parcel) -> dict[str, Any]:
        """The weights of `version`: arrays, or tensors on the GPU where they travelled between GPUs.

        Fault as above; WeightsDiffer when they are not what was sent."""
        weights: dict[str, Any]
        if parcel.kind == OBJECT_STORE:
            weights = parcel.payload
        elif parcel.kind == BROADCAST:
            arrived = dict(self._arrived)
            if version not in arrived:
                raise Fault("weights_missed", f"{self._role} version {version} was broadcast before this process")
            weights = arrived[version]
        else:
            weights = flat.read(Path(parcel.path))
        if parcel.digests is not None:
            check_arrived(parcel.digests, on_host(weights), f"{self._role} version {version} ({parcel.kind})")
        return weights

    def join(self, call: Call, rank: int, host: str) -> None:
        """Become a member of a new group. Fault `broadcast_failed`."""
        self.leave()
        self._group = Group(call, rank, host)

    def receive(self, version: int, parcel: Parcel) -> float:
        """Take part in a broadcast and keep what it brings; seconds. Fault `broadcast_failed`."""
        began = time.perf_counter()
        if self._group is None:
            raise Fault("broadcast_failed", "this process is in no group: it was restarted")
        self._arrived.append((version, self._group.receive(parcel.tensors)))
        return time.perf_counter() - began

    def leave(self) -> None:
        """End the membership."""
        if self._group is not None:
            self._group.close()
        self._group = None
