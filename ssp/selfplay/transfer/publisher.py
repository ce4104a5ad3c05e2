"""The learner's end of transfer: weights in, parcels out."""

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
from ssp.selfplay.transfer import files
from ssp.selfplay.transfer.broadcast import Call, Group
from ssp.selfplay.transfer.parcel import (
    BROADCAST,
    DISK,
    OBJECT_STORE,
    SHM,
    Parcel,
    Place,
    Plan,
    Tensor,
    Weights,
    digests,
    here,
    size,
)


class Publisher:
    """What a worker inherits that publishes. What a parcel needs stays until enough newer ones exist, or `close`."""

    _plan: Plan | None = None
    _shelf: files.Shelf | None = None
    _held: deque[tuple[int, Weights]]
    _socket: socket.socket | None = None
    _group: Group | None = None
    serial = -1

    def exported(self) -> Weights:
        """The weights as they are now."""
        raise NotImplementedError

    def export(self, folder: str, meta: dict[str, Any]) -> None:
        """Write the weights alone into a folder, aside and renamed, with `meta` as its `ssp.json`."""
        aside = Path(f"{folder}.tmp-{os.getpid()}")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        os.close(files.write(aside / "model.safetensors", self.exported()))
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
        self._plan, self.serial, self._held = plan, -1, deque(maxlen=plan.keep)
        if plan.kind == SHM:
            self._shelf = files.memory_shelf(plan.run, plan.role, plan.keep)
        elif plan.kind == DISK:
            self._shelf = files.disk_shelf(Path(plan.folder), plan.role, plan.keep)

    def weights(self) -> tuple[Parcel, dict[str, float]]:
        """A publication of the current weights, and its figures."""
        return self._publish({})

    def _publish(self, stats: dict[str, float]) -> tuple[Parcel, dict[str, Any]]:
        parcel, figures = self.pack(self.exported())
        return parcel, {**stats, **figures}

    def pack(self, weights: Weights) -> tuple[Parcel, dict[str, float]]:
        """Publish `weights`: the parcel, and its serial, bytes and seconds."""
        if self._plan is None:
            raise InvariantError("a learner is told how to publish before it does")
        began = time.perf_counter()
        self.serial += 1
        parcel = self._parcel(self._plan, self._plan.kind, self.serial, weights)
        seconds = time.perf_counter() - began
        return parcel, {"serial": float(self.serial), "sync/bytes": float(parcel.nbytes), "time/sync_pack": seconds}

    def again(self, serial: int) -> tuple[Parcel, dict[str, float]]:
        """An earlier publication once more, its arrays in the parcel itself, for an engine that missed it. Fault
        `weights_gone` when this process has it no more."""
        return self._again(serial, self.exported)

    def _again(self, serial: int, newest: Callable[[], Weights]) -> tuple[Parcel, dict[str, float]]:
        held = {} if self._plan is None else dict(self._held)
        if self._plan is None or (serial != self.serial and serial not in held):
            raise Fault("weights_gone", f"publication {serial}: this learner's process is at {self.serial}")
        weights = held[serial] if serial in held else newest()
        return self._parcel(self._plan, OBJECT_STORE, serial, weights), {"sync/bytes": float(size(weights))}

    def _parcel(self, plan: Plan, kind: str, serial: int, weights: Weights) -> Parcel:
        odd = [name for name, array in weights.items() if not isinstance(array, np.ndarray)]
        if odd:
            raise InvariantError(f"weights travel as numpy arrays: {odd[0]} is none")
        found = digests(weights) if plan.verify or kind == DISK else None
        parcel: dict[str, Any] = {"kind": kind, "serial": serial, "nbytes": size(weights), "digests": found}
        if kind == OBJECT_STORE:
            return Parcel(**parcel, payload=weights)
        if kind == BROADCAST:
            self._held.append((serial, weights))
            tensors = tuple(Tensor(name, array.dtype.str, array.shape) for name, array in weights.items())
            return Parcel(**parcel, tensors=tensors)
        assert self._shelf is not None
        return Parcel(**parcel, path=str(self._shelf.put(serial, weights)))

    def listen(self, host: str) -> int:
        """Open the port at `host` at which a group of receivers will meet; a group that there was ends."""
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

    def close(self) -> None:
        """Give up what was shared: at the run's end."""
        self.leave()
        if self._shelf is not None:
            self._shelf.close()
        self._plan = self._shelf = None
