"""The learner's end of transfer: weights in, parcels out.

Owns what has to stay for a parcel to be of use (files, copies) and gives it up when enough newer ones exist. Promises a
parcel and one serial number for each publication, and that what was shared is gone after `close`. Refuses to know versions,
and what is trained.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ssp.base.errors import Fault, InvariantError
from ssp.record.manifest import RECORD
from ssp.selfplay.transfer import flat
from ssp.selfplay.transfer.broadcast import Call, Group, listen
from ssp.selfplay.transfer.digest import digests
from ssp.selfplay.transfer.files import DiskShelf, MemoryShelf
from ssp.selfplay.transfer.parcel import (
    BROADCAST,
    DISK,
    OBJECT_STORE,
    SHM,
    Parcel,
    Place,
    Plan,
    Weights,
    describe,
    here,
    size,
)


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


class Publisher:
    """What a worker inherits that publishes. `publish_by` comes before the first export."""

    _outbox: Outbox | None = None

    def exported(self) -> Weights:
        """The weights as they are now."""
        raise NotImplementedError

    def export(self, folder: str, meta: dict[str, Any]) -> None:
        """Write the weights alone into a folder, aside and renamed, with `meta` as its `ssp.json`."""
        aside = Path(f"{folder}.tmp-{os.getpid()}")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        path = aside / "model.safetensors"
        descriptor = os.open(path.with_name(path.name + flat.ASIDE), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
        try:
            flat.write(path, self.exported(), descriptor)
        finally:
            os.close(descriptor)
        (aside / RECORD).write_text(json.dumps(meta), encoding="utf-8")
        os.rename(aside, folder)

    def nbytes(self) -> int:
        """About how many bytes `exported` has, before anything is exported."""
        return 0

    def on_gpu(self) -> bool:
        """Whether the weights are on a GPU."""
        return False

    def host(self) -> str:
        """The address at which the other processes of the run reach this one."""
        return "127.0.0.1"

    def place(self) -> Place:
        """Where this process is, and how large its weights are."""
        return here(self.host(), self.on_gpu(), self.nbytes())

    def publish_by(self, plan: Plan) -> None:
        """Publish by `plan` from now on; what was shared before is given up."""
        self.close()
        self._outbox = Outbox(plan)

    def weights(self) -> tuple[Parcel, dict[str, float]]:
        """A publication of the current weights, and its figures."""
        return self._publish({})

    def again(self, serial: int) -> tuple[Parcel, dict[str, float]]:
        """An earlier publication once more, by the object store. Fault `weights_gone` when this process has it no more."""
        return self._again(serial, self.exported)

    def _again(self, serial: int, newest: Callable[[], Weights]) -> tuple[Parcel, dict[str, float]]:
        if self._outbox is None:
            raise Fault("weights_gone", "the learner's process is a new one, which has published nothing")
        return self._outbox.again(serial, newest)

    def listen(self, host: str) -> int:
        """Open the port of a new group of broadcasts at `host`."""
        return self._box().listen(host)

    def join(self, call: Call, host: str) -> None:
        """Wait until the group's members are there. Fault `broadcast_failed`."""
        self._box().join(call, host)

    def send(self, serial: int) -> float:
        """Broadcast a publication; seconds. Fault `broadcast_failed`."""
        return self._box().send(serial)

    def leave(self) -> None:
        """End the group."""
        self._box().leave()

    def close(self) -> None:
        """Give up what was shared: at the run's end."""
        if self._outbox is not None:
            self._outbox.close()
        self._outbox = None

    def _box(self) -> Outbox:
        if self._outbox is None:
            raise InvariantError("a learner is told how to publish before it does")
        return self._outbox

    def _publish(self, stats: dict[str, float]) -> tuple[Parcel, dict[str, Any]]:
        """A publication after an update with these figures."""
        parcel, figures = self._box().pack(self.exported())
        return parcel, {**stats, **figures}
