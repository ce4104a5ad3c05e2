"""Weights in an engine: the one way in which a player or a judge puts a published version into its engine.

Owns which version the engine has. Promises that a version is loaded once, that `transfer.verify` compares what the engine
has with what was sent, and that in flight (a live engine, `schedule.in_flight`) a version only ever goes up.
Refuses to know who plays.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from ssp.base.errors import InputError, InvariantError
from ssp.config.crews import takes_turns
from ssp.config.schema import Config
from ssp.engines import Engine
from ssp.engines.base import Comparable, DeviceEngine, LiveEngine, Readable
from ssp.selfplay.transfer.broadcast import Call
from ssp.selfplay.transfer.digest import WeightsDiffer, check_loaded
from ssp.selfplay.transfer.inbox import Inbox
from ssp.selfplay.transfer.parcel import Parcel, Place, Weights, here, on_gpu, on_host


def spare(cfg: Config, role: str) -> int:
    """Publications of a role that must stay: one a version that may still be played (bound + 1), and one."""
    return int(getattr(cfg.schedule.max_staleness, role)) + 2


class Fittings:
    """The engine of `role`, and the way of weights into it. `plays`: else it only verifies, and nothing is in flight."""

    def __init__(self, cfg: Config, role: str, engine: Engine, plays: bool = True) -> None:
        self._cfg, self._role, self._engine = cfg, role, engine
        self._dtype = cfg.block(role).engine.dtype
        self._live = plays and cfg.schedule.in_flight and getattr(cfg.schedule.max_staleness, role) > 0
        if self._live and not isinstance(engine, LiveEngine):
            rule = f"schedule.in_flight needs a {role} engine whose weights can change in the middle of a turn"
            raise InputError(rule, type(engine).__name__, f"set {role}.engine.continuous=true, or leave it out")
        if cfg.transfer.verify and not isinstance(engine, Readable | Comparable):
            rule = f"transfer.verify needs a {role} engine that can be read back"
            raise InputError(rule, type(engine).__name__, f"set {role}.engine.kind=torch, or transfer.verify=false")
        self.version: int | None = None
        self._inbox = Inbox(role, spare(cfg, role))
        self._loading = threading.Lock()

    def fit(self, version: int, parcel: Parcel) -> dict[str, float]:
        """Have `version` in the engine; seconds of transfer and load. In flight a newer one stays.

        Fault `payload_lost` or `weights_missed`; WeightsDiffer.
        """
        with self._loading:
            if version == self.version or (self._live and self.version is not None and version < self.version):
                return {}
            began = time.perf_counter()
            weights = self._inbox.open(version, parcel)
            opened = time.perf_counter()
            self._load(weights, version)
            self.version = version
            return {"sync_transfer": opened - began, "sync_load": time.perf_counter() - opened}

    def _load(self, weights: dict[str, Any], version: int) -> None:
        keep = self._live and self.version is not None
        if on_gpu(weights):
            if not isinstance(self._engine, DeviceEngine):
                raise InvariantError(f"{type(self._engine).__name__} takes no tensors on a GPU")
            self._engine.load_device(weights, version, keep)
        else:
            self._engine.load(weights, version, keep)
        if self._cfg.transfer.verify:
            self._compare(on_host(weights), f"{self._role} version {version}")

    def _compare(self, weights: Weights, who: str) -> None:
        if isinstance(self._engine, Readable):
            check_loaded(weights, self._engine.weights(), self._dtype, who)
            return
        assert isinstance(self._engine, Comparable)
        name = self._engine.differs(weights)
        if name:
            raise WeightsDiffer(f"{who}: the engine's {name} is not what it was handed")

    def place(self, host: str) -> Place:
        """Where this process is. An engine that sleeps while the learner computes takes weights on the host only."""
        gpu = self._cfg.placement.engine_gpus > 0 and not takes_turns(self._cfg, self._role)
        return here(host, gpu and isinstance(self._engine, DeviceEngine))

    def join(self, call: Call, rank: int, host: str) -> None:
        """Become a member of a group of broadcasts. Fault `broadcast_failed`."""
        self._inbox.join(call, rank, host)

    def receive(self, version: int, parcel: Parcel) -> dict[str, float]:
        """Take part in a broadcast; in flight, load it at once. Fault `broadcast_failed`."""
        seconds = {"sync_transfer": self._inbox.receive(version, parcel)}
        if self._live:
            seconds |= {"sync_load": self.fit(version, parcel).get("sync_load", 0.0)}
        return seconds

    def leave(self) -> None:
        """Leave the group."""
        self._inbox.leave()
