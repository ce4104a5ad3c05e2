"""The engine's end of transfer: parcels in, weights out, and into the engine."""

import threading
import time
from pathlib import Path

from ssp.base.errors import Fault, InputError
from ssp.base.models import tensors, weight_files
from ssp.base.values import Seconds
from ssp.config.crews import bound
from ssp.config.schema import Config
from ssp.engines import Engine
from ssp.engines.base import LiveEngine
from ssp.record.manifest import check_files
from ssp.selfplay.transfer.parcel import Parcel, Weights


def read(folder: Path) -> Weights:
    """The tensors of a model folder. Fault `payload_lost` when a file is missing or differs from
    the folder's record."""
    from safetensors import SafetensorError

    weights: Weights = {}
    try:
        check_files(folder)
        for file in weight_files(folder):
            weights |= tensors(file)
    except (InputError, OSError, SafetensorError) as error:
        raise Fault("payload_lost", str(error)) from error
    return weights


def opened(parcel: Parcel) -> Weights:
    """The weights in a parcel. Raises as `read`."""
    if parcel.path:
        return read(Path(parcel.path))
    weights: Weights = parcel.payload
    return weights


class Loader:
    """Loads weights into the engine of `role`, each version once. In flight (a live engine,
    `schedule.in_flight`) the version only ever goes up. `plays`: False where the engine only
    verifies; then nothing is in flight."""

    def __init__(self, cfg: Config, role: str, engine: Engine, plays: bool = True) -> None:
        self._cfg = cfg
        self._role = role
        self._engine = engine
        self._live = plays and cfg.schedule.in_flight and bound(cfg, role) > 0
        if self._live and not isinstance(engine, LiveEngine):
            rule = (
                f"schedule.in_flight needs a {role} engine whose weights can change in the middle"
                " of a turn"
            )
            raise InputError(rule, type(engine).__name__, "leave schedule.in_flight out")
        self.version: int | None = None
        self._loading = threading.Lock()

    def fit(self, version: int, parcel: Parcel) -> Seconds:
        """Load `version` unless the engine has it; the seconds of transfer and load. In flight a
        newer version stays. Raises as `opened`."""
        with self._loading:
            if version == self.version:
                return {}
            held = self.version if self._live else None
            if held is not None and version < held:
                return {}

            began = time.perf_counter()
            weights = opened(parcel)
            at_hand = time.perf_counter()
            self._engine.load(weights, version, held is not None)
            self.version = version
            return {
                "sync_transfer": at_hand - began,
                "sync_load": time.perf_counter() - at_hand,
            }

    refresh = fit
    """While the engine plays in another thread (in flight)."""
