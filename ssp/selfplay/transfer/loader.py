"""The engine's end of transfer: parcels in, weights out, and into the engine."""

import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from ssp.base.errors import Fault, InputError, InvariantError
from ssp.base.models import weight_files
from ssp.config.crews import bound, takes_turns
from ssp.config.schema import Config
from ssp.engines import Engine
from ssp.engines.base import DeviceEngine, LiveEngine
from ssp.record.manifest import check_files
from ssp.selfplay.transfer.broadcast import Call, Group
from ssp.selfplay.transfer.parcel import FOLDER, OBJECT_STORE, Parcel, Place, Weights, here


def read(folder: Path) -> Weights:
    """The tensors of a model folder. Fault `payload_lost` when one is gone or not as the folder's
    record has it."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        check_files(folder)
        files = [load_file(file) for file in weight_files(folder)]
    except (InputError, OSError, SafetensorError) as error:
        raise Fault("payload_lost", str(error)) from error
    return {name: array for tensors in files for name, array in tensors.items()}


class Inbox:
    """Opens parcels of one role. `keep`: broadcast versions that may still be asked for."""

    def __init__(self, role: str, keep: int) -> None:
        self._role = role
        self._arrived: deque[tuple[int, dict[str, Any]]] = deque(maxlen=keep)
        self._group: Group | None = None

    def open(self, version: int, parcel: Parcel) -> dict[str, Any]:
        """The weights of `version`: arrays, or tensors on the GPU where they travelled between
        GPUs. Fault `payload_lost` or `weights_missed`."""
        if parcel.kind == OBJECT_STORE:
            return parcel.payload
        if parcel.kind == FOLDER:
            return read(Path(parcel.path))
        arrived = dict(self._arrived)
        if version not in arrived:
            raise Fault(
                "weights_missed",
                f"{self._role} version {version} was broadcast before this process",
            )
        return arrived[version]

    def join(self, call: Call, rank: int, host: str) -> None:
        """Become a member of a new group. Fault `broadcast_failed`."""
        self.leave()
        self._group = Group(call, rank, host)

    def arrive(self, version: int, parcel: Parcel) -> float:
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


def spare(cfg: Config, role: str) -> int:
    """Publications of a role that must stay: one a version that may still be played (bound + 1),
    and one."""
    return bound(cfg, role) + 2


class Loader(Inbox):
    """The engine of `role`, and the way of weights into it: a version is loaded once, and in flight
    (a live engine, `schedule.in_flight`) only ever goes up. `plays`: else it only verifies, and
    nothing is in flight."""

    def __init__(self, cfg: Config, role: str, engine: Engine, plays: bool = True) -> None:
        super().__init__(role, spare(cfg, role))
        self._cfg, self._engine = cfg, engine
        self._live = plays and cfg.schedule.in_flight and bound(cfg, role) > 0
        if self._live and not isinstance(engine, LiveEngine):
            rule = (
                f"schedule.in_flight needs a {role} engine whose weights can change in the middle"
                " of a turn"
            )
            raise InputError(rule, type(engine).__name__, "leave schedule.in_flight out")
        self.version: int | None = None
        self._loading = threading.Lock()

    def fit(self, version: int, parcel: Parcel) -> dict[str, float]:
        """Have `version` in the engine; seconds of transfer and load. In flight a newer one stays.
        Raises as `open`."""
        with self._loading:
            if version == self.version or (
                self._live and self.version is not None and version < self.version
            ):
                return {}
            began = time.perf_counter()
            weights = self.open(version, parcel)
            opened = time.perf_counter()
            self._load(weights, version)
            self.version = version
            return {"sync_transfer": opened - began, "sync_load": time.perf_counter() - opened}

    def _load(self, weights: dict[str, Any], version: int) -> None:
        engine, keep = self._engine, self._live and self.version is not None
        if all(isinstance(tensor, np.ndarray) for tensor in weights.values()):
            engine.load(weights, version, keep)
        elif isinstance(engine, DeviceEngine):
            engine.load_device(weights, version, keep)
        else:
            raise InvariantError(f"{type(engine).__name__} takes no tensors on a GPU")

    refresh = fit
    """While the engine plays in another thread (in flight)."""

    def host(self) -> str:
        """The address at which the other processes of the run reach this one."""
        return "127.0.0.1"

    def place(self) -> Place:
        """Where this process is. An engine that sleeps while the learner computes takes weights on
        the host only."""
        gpu = self._cfg.placement.engine_gpus > 0 and not takes_turns(self._cfg, self._role)
        return here(self.host(), gpu and isinstance(self._engine, DeviceEngine))

    def receive(self, version: int, parcel: Parcel) -> dict[str, float]:
        """Take part in a broadcast; in flight, load it at once. Fault `broadcast_failed`."""
        seconds = {"sync_transfer": self.arrive(version, parcel)}
        if self._live:
            seconds |= {"sync_load": self.fit(version, parcel).get("sync_load", 0.0)}
        return seconds
