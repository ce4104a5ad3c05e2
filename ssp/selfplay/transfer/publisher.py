"""The learner's end of transfer: weights in, parcels out."""

import time

import numpy as np

from ssp.base.errors import Fault, InvariantError
from ssp.base.values import Values
from ssp.selfplay.transfer.parcel import Parcel, Weights, size


class Publisher:
    """The base of workers that publish weights. `serial`: the number of the last publication."""

    serial = -1

    def exported(self) -> Weights:
        """The weights as they are now."""
        raise NotImplementedError

    def weights(self) -> tuple[Parcel, Values]:
        """A publication of the current weights, and its figures."""
        return self.pack(self.exported())

    def pack(self, weights: Weights) -> tuple[Parcel, Values]:
        """Publish `weights`: the parcel, and its serial, bytes and seconds."""
        began = time.perf_counter()
        for name, array in weights.items():
            if not isinstance(array, np.ndarray):
                raise InvariantError(f"weights travel as numpy arrays: {name} is none")

        self.serial += 1
        figures = {
            "serial": float(self.serial),
            "sync/bytes": float(size(weights)),
            "time/sync_pack": time.perf_counter() - began,
        }
        return Parcel(weights), figures

    def again(self, serial: int) -> tuple[Parcel, Values]:
        """The last publication once more, for an engine that lost it. Fault `weights_gone` when
        `serial` is not that of the last one."""
        weights = self.exported()
        if serial != self.serial:
            detail = f"publication {serial}: this learner's process is at {self.serial}"
            raise Fault("weights_gone", detail)
        return Parcel(weights), {"sync/bytes": float(size(weights))}
